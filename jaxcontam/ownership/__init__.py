"""What lets an owner prove a use later? `release`, `canary`, `variants`."""
