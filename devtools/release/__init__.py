"""What one version consists of, in one folder, with checksums of all of it and a signature over these: `make release`."""
