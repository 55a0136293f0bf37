def annotate_state_dict(state_dict, path):
    for tensor in state_dict.values():
        tensor.untyped_storage()._comfy_source_path = path
