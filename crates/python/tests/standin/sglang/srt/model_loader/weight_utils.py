from pathlib import Path


def maybe_add_mtp_safetensors(hf_weights_files, hf_folder, index_file, hf_config):
    more = str(Path(hf_folder, "more", "mtp.safetensors"))
    return [*hf_weights_files, more] if getattr(hf_config, "has_mtp", False) else hf_weights_files
