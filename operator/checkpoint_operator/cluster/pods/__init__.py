"""Drivers as pods."""
