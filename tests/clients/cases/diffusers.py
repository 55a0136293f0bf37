"""diffusers: a model alone, and a whole pipeline."""
import models
import package
import torch
from case import Case
from diffusers import (AutoencoderKL, BitsAndBytesConfig, DDIMScheduler, StableDiffusionPipeline,
                       UNet2DConditionModel)
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

MADE = "diffusers' `save_pretrained` of small Stable Diffusion components, F32"
REFERENCE = "the pipeline in memory; bitsandbytes' `dequantize_4bit` for nf4"
CLIENT = "diffusers"

ALPHABET = [chr(code) for code in range(ord("a"), ord("z") + 1)]


def unet():
    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=8, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32, norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=8).eval()


def aligned(made):
    """The model with copies of its weights: the weights of a mapped file have any alignment, on which a convolution's
    rounding depends."""
    made.load_state_dict({name: value.clone() for name, value in made.state_dict().items()}, assign=True)
    return made


@torch.no_grad()
def image_of(made):
    noise = torch.linspace(-1, 1, 4 * 8 * 8).reshape(1, 4, 8, 8)
    words = torch.linspace(-1, 1, 5 * 32).reshape(1, 5, 32)
    return made(noise, 7, words.to(made.dtype)).sample.float()


def model_alone(safetensors):
    def make(work):
        made = unet()
        made.save_pretrained(work / "unet", safe_serialization=safetensors)
        return models.Source(work / "unet", model=made)

    return make


def state(made):
    return models.State(made.state_dict(), image_of(aligned(made)))


def opened_alone(out, source):
    made = UNet2DConditionModel.from_pretrained(out).eval()
    package.check({"": made}, lambda: {"": UNet2DConditionModel.from_pretrained(out)})
    return state(made)


def tokenizer():
    words = ["<|startoftext|>", "<|endoftext|>", *ALPHABET, *(letter + "</w>" for letter in ALPHABET)]
    return CLIPTokenizer({word: number for number, word in enumerate(words)}, [], model_max_length=16)


def pipeline(quantised=False, safetensors=True):
    def make(work):
        torch.manual_seed(1)
        vae = AutoencoderKL(block_out_channels=(32, 32), norm_num_groups=8, latent_channels=4,
                            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
        words = CLIPTextConfig(vocab_size=54, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                               num_attention_heads=2, max_position_embeddings=16, bos_token_id=0, eos_token_id=1)
        scheduler = DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear",
                                  clip_sample=False, set_alpha_to_one=False, steps_offset=1)
        made = StableDiffusionPipeline(
            vae=vae.eval(), text_encoder=CLIPTextModel(words).eval(), tokenizer=tokenizer(), unet=unet(),
            scheduler=scheduler, safety_checker=None, feature_extractor=None, requires_safety_checker=False)
        out = work / "pipeline"
        made.save_pretrained(out, safe_serialization=safetensors)
        if quantised:
            config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
            small = UNet2DConditionModel.from_pretrained(out / "unet", quantization_config=config)
            small.save_pretrained(out / "unet")
            made.unet.load_state_dict({**made.unet.state_dict(), **dequantised(small)})
        return models.Source(out, model=made)

    return make


def dequantised(small):
    import bitsandbytes

    weights = {}
    for name, module in small.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            value = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            weights[name + ".weight"] = value.float()
    if not weights:
        raise AssertionError("nothing was quantised")
    return weights


def modules(made):
    return {name: getattr(made, name) for name in ("unet", "vae", "text_encoder")}


def pipeline_state(made):
    parts = {name: aligned(module) for name, module in modules(made).items()}
    weights = {f"{part}.{name}": value for part, module in parts.items() for name, value in module.state_dict().items()}
    made.set_progress_bar_config(disable=True)
    noise = torch.linspace(-1, 1, 4 * 8 * 8).reshape(1, 4, 8, 8)
    image = made("a small cat", num_inference_steps=2, latents=noise, output_type="pt").images
    return models.State(weights, image.float())


def opened_pipeline(out, source):
    made = StableDiffusionPipeline.from_pretrained(out)
    package.check(modules(made), lambda: modules(StableDiffusionPipeline.from_pretrained(out)))
    return pipeline_state(made)


def whole(label, make, **more):
    return Case(label, make, lambda source: pipeline_state(source.model), opened_pipeline, **more)


CASES = [
    *(Case(f"UNet, {label}", model_alone(safetensors), lambda source: state(source.model), opened_alone)
      for label, safetensors in [("safetensors", True), ("diffusion_pytorch_model.bin", False)]),
    whole("pipeline, safetensors", pipeline()),
    whole("pipeline, .bin", pipeline(safetensors=False)),
    whole("pipeline, UNet in nf4", pipeline(quantised=True), unavailable="diffusers quantises on a GPU only"),
]
