"""What can be known of a write without running it. Nothing here imports or runs user code, or makes a table or folder."""
