aimdo_enabled = False
