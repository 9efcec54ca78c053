"""The console: server-rendered pages over a runtime."""
