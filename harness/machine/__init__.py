"""What this machine is: hardware, memory counters, installed engines and how to install them properly."""
