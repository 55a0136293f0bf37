def compute_local_expert_ids(num_experts, ep_size, ep_rank, placement="linear"):
    if ep_size <= 1:
        return None
    if placement == "round_robin":
        return set(range(ep_rank, num_experts, ep_size))
    bounds = [num_experts * number // ep_size for number in range(ep_size + 1)]
    return set(range(bounds[ep_rank], bounds[ep_rank + 1]))


def should_skip_weight(weight_name, local_expert_ids):
    words = weight_name.split(".")
    number = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "experts" and words[at + 1].isdigit()), None)
    return number is not None and words[-1] == "weight" and int(number) not in local_expert_ids
