"""What a machine was busy with, and how hot, how fast and how thirsty it was, before and during a measurement."""
