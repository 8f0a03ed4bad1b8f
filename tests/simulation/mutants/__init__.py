"""Bugs of systems like this one, planted: the checks must catch each, or they prove nothing.

Each mutant is a small port or subclass that replaces one piece of production code; nothing here is imported by the product.
`mutants` lists them with what each is.
"""
