"""The words that the operator and the Spark application share.

Identity, layout, records and store rules of a checkpointed write. Depends on pydantic and obstore only, so that either image
can import it without the other's libraries.
"""
