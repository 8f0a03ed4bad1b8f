"""What comes after a write's last epoch: retention, time to live, deletion."""
