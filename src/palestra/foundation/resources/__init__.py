"""What a process opens and must close: connections that belong to an event loop, and resources that several users share."""
