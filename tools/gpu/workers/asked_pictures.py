"""Pipelines of Diffusers with weights that are drawn, their prompts already read.

Sizes are those of the published configurations. Text encoders are left out: a pipeline takes what
they would give.
"""

import diffusers
import torch

_FOUR = {
    "block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "latent_channels": 4,
    "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
}  # fmt: skip
_SIXTEEN = {
    **_FOUR, "latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False,
    "shift_factor": 0.1, "scaling_factor": 0.36,
}  # fmt: skip


def made(job):
    """What makes one picture or clip of a job."""
    return PIPELINES[job["pipeline"]](job)


def denoiser(job):
    """The U-Net of Stable Diffusion 1.5 and what one step of training gives it."""
    side = job["image"] // 8
    inputs = {
        "sample": torch.randn(job["batch"], 4, side, side),
        "timestep": torch.randint(0, 1000, (job["batch"],)),
        "encoder_hidden_states": torch.randn(job["batch"], 77, 768),
    }
    return _sd15_network(), inputs


def _sd15_network():
    return diffusers.UNet2DConditionModel(
        sample_size=64, cross_attention_dim=768, attention_head_dim=8
    )


def _sd15(job):
    pipeline = diffusers.StableDiffusionPipeline(
        vae=diffusers.AutoencoderKL(**_FOUR, sample_size=512), text_encoder=None, tokenizer=None,
        unet=_sd15_network(),
        scheduler=diffusers.PNDMScheduler(skip_prk_steps=True, steps_offset=1),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    words = torch.randn(job["batch"], 77, 768)
    return _asked(job, pipeline, prompt_embeds=words, negative_prompt_embeds=words)


def _sdxl(job):
    network = diffusers.UNet2DConditionModel(
        sample_size=128, cross_attention_dim=2048, attention_head_dim=[5, 10, 20],
        block_out_channels=(320, 640, 1280), transformer_layers_per_block=[1, 2, 10],
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        addition_embed_type="text_time", addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816, use_linear_projection=True,
    )  # fmt: skip
    with torch.device("cpu"):
        scheduler = diffusers.EulerDiscreteScheduler()  # It makes its table with NumPy.
    pipeline = diffusers.StableDiffusionXLPipeline(
        vae=diffusers.AutoencoderKL(**_FOUR, sample_size=1024, force_upcast=True),
        text_encoder=None, text_encoder_2=None, tokenizer=None, tokenizer_2=None, unet=network,
        scheduler=scheduler,
    )  # fmt: skip
    return _guided(job, pipeline, (77, 2048), 1280)


def _sd3(job):
    network = diffusers.SD3Transformer2DModel(
        sample_size=128, num_layers=24, attention_head_dim=64, num_attention_heads=24,
        caption_projection_dim=1536, pooled_projection_dim=2048, joint_attention_dim=4096,
        pos_embed_max_size=192,
    )  # fmt: skip
    pipeline = diffusers.StableDiffusion3Pipeline(
        transformer=network, scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=diffusers.AutoencoderKL(**_SIXTEEN, sample_size=1024), text_encoder=None,
        tokenizer=None, text_encoder_2=None, tokenizer_2=None, text_encoder_3=None,
        tokenizer_3=None,
    )  # fmt: skip
    return _guided(job, pipeline, (333, 4096), 2048)


def _flux(job):
    network = diffusers.FluxTransformer2DModel(guidance_embeds=True)
    pipeline = diffusers.FluxPipeline(
        transformer=network, scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=diffusers.AutoencoderKL(**_SIXTEEN, sample_size=1024), text_encoder=None,
        tokenizer=None, text_encoder_2=None, tokenizer_2=None,
    )  # fmt: skip
    words, pooled = torch.randn(job["batch"], 512, 4096), torch.randn(job["batch"], 768)
    return _asked(job, pipeline, prompt_embeds=words, pooled_prompt_embeds=pooled)


def _wan(job):
    network = diffusers.WanTransformer3DModel(num_attention_heads=12, ffn_dim=8960, num_layers=30)
    pipeline = diffusers.WanPipeline(
        tokenizer=None,
        text_encoder=None,
        vae=diffusers.AutoencoderKLWan(),
        scheduler=diffusers.UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True
        ),
        transformer=network,
    )
    words = torch.randn(job["batch"], 512, 4096)
    return _asked(
        job, pipeline, width=832, num_frames=job.get("frames", 81), prompt_embeds=words,
        negative_prompt_embeds=words,
    )  # fmt: skip


def _guided(job, pipeline, words_shape, pooled_width):
    """With a prompt of so many words and their sum, and the same again for guidance."""
    words = torch.randn(job["batch"], *words_shape)
    pooled = torch.randn(job["batch"], pooled_width)
    return _asked(
        job, pipeline, prompt_embeds=words, negative_prompt_embeds=words,
        pooled_prompt_embeds=pooled, negative_pooled_prompt_embeds=pooled,
    )  # fmt: skip


def _asked(job, pipeline, **given):
    pipeline.set_progress_bar_config(disable=True)
    usual = {"height": job["image"], "width": job["image"], "num_inference_steps": job["steps"]}
    given = {**usual, "output_type": "pt", **given}
    return lambda: pipeline(**given)


PIPELINES = {"sd15": _sd15, "sdxl": _sdxl, "sd3": _sd3, "flux": _flux, "wan": _wan}
