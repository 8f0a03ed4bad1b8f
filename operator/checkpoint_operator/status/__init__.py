"""What an object's status, conditions and events say."""
