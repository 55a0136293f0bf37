LOAD_FORMAT_CHOICES = ["auto", "safetensors"]
add_load_format_choices = LOAD_FORMAT_CHOICES.extend
