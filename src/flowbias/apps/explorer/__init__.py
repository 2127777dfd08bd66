"""The explorer: pictures of the theory that answer while a slider moves (`flowbias explore`)."""
