"""The formats of sources and sinks: what both programs know of them. One package a format; port.py says what each fulfils."""
