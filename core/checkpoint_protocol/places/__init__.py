"""Where things lie and how they are reached: settings, storage, URIs."""
