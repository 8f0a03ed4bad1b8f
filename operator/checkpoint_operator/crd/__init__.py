"""The CustomResourceDefinition, made of the models."""
