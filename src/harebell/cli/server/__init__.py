"""The commands for a broker of this machine: `harebell serve`, its configuration, its data folder, its process."""
