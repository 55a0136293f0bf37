"""Each tensor that has parts becomes a dictionary of them."""

import json


def unflatten_tensor_state_dict(tensors_data_dict, metadata):
    made, left = {}, dict(tensors_data_dict)
    for name in json.loads(metadata["tensor_names"]):
        module, own = name.rsplit(".", 1)
        described = json.loads(metadata[name])
        stored = {part: f"{module}._{own}_{part}" for part in described["_tensor_data_names"]}
        if all(one in left for one in stored.values()):
            made[name] = {"type": described["_type"], **{part: left.pop(one) for part, one in stored.items()}}
    return made, left
