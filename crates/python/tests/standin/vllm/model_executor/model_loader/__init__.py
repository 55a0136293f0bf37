from .base_loader import BaseModelLoader

LOADERS = {}


def register_model_loader(load_format: str):
    def register(model_loader_cls):
        if not issubclass(model_loader_cls, BaseModelLoader):
            raise ValueError(model_loader_cls)
        LOADERS[load_format] = model_loader_cls
        return model_loader_cls

    return register


def get_model_loader(load_config):
    return LOADERS[load_config.load_format](load_config)
