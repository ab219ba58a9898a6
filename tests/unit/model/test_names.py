"""Models by the names that people type: the zoo, sizes of hubs, libraries."""

import re
from pathlib import Path

import pytest

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.names.lookup import entry_of, told_reading
from paceline.model.names.registry import names_of, patterns, words
from paceline.model.names.spelling import name_key
from paceline.model.names.zoo_facts import zoo_facts
from paceline.model.reading.load import load_workload


@pytest.mark.parametrize(
    ("typed", "entry"),
    [
        ("resnet-50", "resnet50"), ("microsoft/resnet-50", "resnet50"),
        ("llama3-8b", "llama-3-8b"), ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-4-Scout-17B-16E", "hf:llama-4-scout"),
        ("meta-llama/Llama-3.3-70B-Instruct", "hf:llama-3.1-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "hf:mistral-7b"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "hf:qwen2.5-7b"), ("qwen3-235b", "hf:qwen3-235b-a22b"),
        ("google/gemma-3-27b-it", "hf:gemma-3-27b"), ("deepseek-r1", "hf:deepseek-v3"),
        ("facebook/esm2_t33_650M_UR50D", "hf:esm2-650m"), ("RT-DETR", "hf:rt-detr-r50"),
        ("yolov8n", "published_yolo:yolov8n"), ("dlrm-v2", "published_tables:dlrm_dcnv2"),
        ("YOLO11x", "published_yolo:yolo11x"), ("YOLOv5s", "published_yolo:yolov5s"),
        ("ultralytics/yolov5s", "published_yolo:yolov5s"), ("yolov9-c", "published_yolo:yolov9c"),
        ("yolov5mu.pt", "published_yolo:yolov5mu"), ("yolo12n.pt", "published_yolo:yolo12n"),
        ("YOLOv12-x", "published_yolo:yolo12x"), ("Ultralytics/YOLO26m", "published_yolo:yolo26m"),
        ("jameslahm/yolov10s", "published_yolo:yolov10s"),
        ("YOLOv8n-seg", "published_yolo:yolov8n-seg"),
        ("yolo11m-pose.pt", "published_yolo:yolo11m-pose"),
        ("stabilityai/stable-diffusion-xl-base-1.0", "published_diffusion:sdxl"),
        ("black-forest-labs/FLUX.1-dev", "published_images:flux1"),
        ("convnextv2_base.fcmae", "timm:convnextv2_base"), ("ViT-B/32", "torchvision:vit_b_32"),
        ("facebook/sam2-hiera-large", "hf:sam2-hiera-large"), ("Jamba", "hf:jamba-v0.1"),
        ("Wan-AI/Wan2.2-T2V-A14B", "published_images:wan21_14b"), ("OPT-13B", "hf:opt-13b"),
        ("mistralai/Magistral-Small-2509", "hf:mistral-small-24b"),
        ("RWKV/rwkv-4-1b5-pile", "hf:rwkv-4-1b5"), ("zai-org/GLM-4.7", "hf:glm-4.5"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "hf:nemotron-nano-9b-v2"),
        ("facebook/convnext-tiny-224", "timm:convnext_tiny"), ("TimesFM", "hf:timesfm-2.0-500m"),
        ("google/mt5-large", "hf:mt5-large"), ("Grounding DINO", "hf:grounding-dino-tiny"),
        ("IDEA-Research/grounding-dino-base", "hf:grounding-dino-base"),
        ("OWL-ViT", "hf:owlvit-base-32"), ("google/owlv2-large-patch14", "hf:owlv2-large-14"),
        ("google/owlv2-base-patch16-ensemble", "hf:owlv2-base-16"), ("V-JEPA 2", "hf:vjepa2-vitl"),
        ("facebook/vjepa2-vitg-fpc64-256", "hf:vjepa2-vitg"), ("zai-org/GLM-4.5V", "hf:glm-4.5v"),
        ("mistralai/Devstral-2-123B-Instruct-2512", "hf:devstral-2-123b"),
        ("mistralai/Devstral-Small-2-24B-Instruct-2512", "hf:mistral-small-3.1-24b"),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", "hf:mistral-large-3-675b"),
        ("Qwen/Qwen2.5-Omni-7B", "hf:qwen2.5-omni-7b"), ("Qwen/Qwen3.8-27B", "hf:qwen3.5-27b"),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "hf:qwen3.5-35b-a3b"), ("Qwen 3.5 9B", "hf:qwen3.5-9b"),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "hf:kimi-linear-48b-a3b"),
        ("google/gemma-4-26B-A4B-it", "hf:gemma-4-26b-a4b"), ("zai-org/GLM-5.1", "hf:glm-5"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "hf:deepseek-v3.2"), ("Kimi K2.6", "hf:kimi-k2.5"),
        ("deepseek-ai/DeepSeek-V3-0324", "hf:deepseek-v3"), ("tencent/Hy3-preview", "hf:hy3"),
        ("Wan-AI/Wan2.2-TI2V-5B-Diffusers", "published_images:wan22_5b"),
        ("Lightricks/LTX-Video", "published_images:ltx_2b"),
        ("Qwen/Qwen-Image", "published_images:qwen_image"),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "hf:bge-m3"),
        ("Snowflake/snowflake-arctic-embed-l", "bert-large"), ("ProtT5", "hf:prot-t5-xl"),
        ("camembert-base", "hf:camembert-base"), ("MiniMaxAI/MiniMax-M2.7", "hf:minimax-m2"),
        ("LTX-Video-0.9.7-dev", "published_images:ltx_13b"),
        ("GroundingDINO-T", "hf:grounding-dino-tiny"),
        ("nvidia/segformer-b5-finetuned-ade-640-640", "hf:segformer-b5"),
        ("PekingU/rtdetr_v2_r50vd", "hf:rt-detr-v2-r50"), ("D-FINE-L", "hf:d-fine-l"),
        ("black-forest-labs/FLUX.2-klein-4B", "published_images:flux2_klein_4b"),
        ("Tongyi-MAI/Z-Image-Turbo", "published_images:z_image"),
        ("nvidia/parakeet-tdt-0.6b-v3", "hf:parakeet-tdt-0.6b"),
        ("nvidia/canary-1b-v2", "hf:canary-1b-v2"), ("Roboflow/rf-detr-base", "hf:rf-detr-base"),
        ("rfdetr-nano", "hf:rf-detr-nano"), ("dfine-small-coco", "hf:d-fine-s"),
        ("microsoft/Phi-4-multimodal-instruct", "hf:phi-4-multimodal"),
        ("jinaai/jina-embeddings-v3", "hf:jina-embeddings-v3"), ("D-FINE-X", "hf:d-fine-x"),
        ("facebook/sam3", "hf:sam3"),
        ("AlphaFold 2", "published_folding:alphafold2_256"),
        ("openfold-finetuning", "published_folding:alphafold2_384"), ("SAM 3", "hf:sam3"),
        ("OpenGVLab/InternVL3_5-8B", "hf:internvl3.5-8b"),
        ("zai-org/GLM-4.1V-9B-Thinking", "hf:glm-4.1v-9b"),
        ("Qwen/Qwen3-Omni-30B-A3B-Instruct", "hf:qwen3-omni-30b-a3b"),
        ("LiquidAI/LFM2-8B-A1B", "hf:lfm2-8b-a1b"), ("Qwen/Qwen3-ASR-1.7B", "hf:qwen3-asr-1.7b"),
        ("RWKV/RWKV7-Goose-World3-2.9B-HF", "published_recurrent:rwkv7_2b9"),
        ("rwkv7-1.5b", "published_recurrent:rwkv7_1b5"),
        ("hf:anything", "hf:anything"), ("train:make_model", "train:make_model"),
    ],
)  # fmt: skip
def test_a_typed_name_means_its_model(typed, entry):
    assert entry_of(typed) == entry


def test_every_name_means_itself():
    assert all(entry_of(name) == name for name in zoo_facts())
    for name in names_of("hub").written:
        assert entry_of(name) in (name, f"hf:{name}")


@pytest.mark.parametrize(
    "name", ["whisper-large-v4", "openai/whisper-large-v9", "nomic-embed-text-v3", "jamba-v7"]
)
def test_a_version_is_no_other_where_versions_have_entries(name):
    with pytest.raises(UnknownNameError):
        entry_of(name)


def test_a_version_is_another_training_where_none_has_an_entry():
    assert entry_of("mistral-7b-v0.3") == entry_of("mistral-7b")


@pytest.mark.parametrize(
    ("typed", "near"),
    [("wavlm", "wavlm-large"), ("musicgen", "musicgen-medium"),
     ("YOLO", "published_yolo:yolo26n"), ("yolov6", "yolov9"), ("yolov5x6", "yolov5x"),
     ("RF-DETR", "rf-detr-medium"),
     ("qwen3-9b", "qwen3-8b"), ("mT5", "mt5-large"), ("suno/bark", "bark-coarse"),
     ("gemma 4", "gemma-4-31b"), ("Qwen2.5-Omni-3B", "qwen2.5-omni-7b"), ("RWKV-7", "rwkv7_1b5"),
     ("published:ssd30", "published:ssd300"), ("published_speech:jaspar", "jasper"),
     ("nobody/no-such-model", "hf:config.json")],
)  # fmt: skip
def test_a_name_of_several_or_of_none_says_what_there_is(typed, near):
    with pytest.raises(UnknownNameError) as caught:
        entry_of(typed)
    assert typed in str(caught.value)
    assert near in caught.value.hint


def test_a_config_in_a_folder_is_an_entry(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert entry_of(str(tmp_path)) == f"hf:{tmp_path}"
    assert entry_of(f"{tmp_path}/config.json") == f"hf:{tmp_path}/config.json"


def test_a_title_says_what_another_name_was_taken_as():
    assert load_workload("ResNet-50").title == load_workload("resnet50").title
    assert load_workload("rn/resnet-50-v1").title == "rn/resnet-50-v1 (as ResNet-50)"


def test_what_a_line_of_names_means_is_known():
    """Entries without a group of their pattern; those with one are spelled by the tests above."""
    for _, alias in patterns():
        if alias.entry.startswith("hf:") and "\\" not in alias.entry:
            assert alias.entry.removeprefix("hf:") in names_of("hub").written, alias.entry


#: Brown et al. 2020, table 2.1.
GPT3 = "transformer:layers=96,hidden=12288,heads=96,vocab=50257,positions=2048,tied=1"


@pytest.mark.parametrize(
    ("typed", "entry"),
    [
        ("bert", "bert-base"), ("BERT", "bert-base"), ("vit", "vit_b_16"), ("ViT-B", "vit_b_16"),
        ("Vision Transformer", "vit_b_16"), ("GAN", "dcgan"), ("SimpleRNN", "rnn"),
        ("simple-rnn", "rnn"), ("keras-cnn", "mnist-cnn"), ("28×28×1 Keras CNN", "mnist-cnn"),
        ("MNIST", "mnist-cnn"), ("CIFAR-10", "cifar10-cnn"), ("llama", "llama-3-8b"),
        ("Llama 2", "hf:llama-2-7b"), ("Llama 3.1", "hf:llama-3.1-8b"), ("diffusion", "sd15-unet"),
        ("diffusion model", "sd15-unet"), ("Stable Diffusion", "sd15-unet"), ("unet", "unet"),
        ("U-Net", "unet"), ("VAE", "vae"), ("dqn", "dqn"), ("PPO", "ppo"), ("RL policy", "ppo"),
        ("Inception", "inception_v3"), ("inception v1", "googlenet"), ("ResNet", "resnet50"),
        ("VGG", "vgg16"), ("LSTM", "lstm"), ("GRU", "gru"), ("GPT-2 small", "gpt2"),
        ("t5", "t5-base"), ("Swin Transformer", "swin_t"), ("mistral", "hf:mistral-7b"),
        ("clip", "clip-vit-b-32"), ("gpt-3 175B", GPT3), ("gpt3", GPT3),
        ("whisper", "hf:whisper-large-v3"), ("mixtral", "mixtral-8x7b"), ("Qwen", "hf:qwen3-8b"),
        ("DINOv2", "hf:dinov2-base"), ("YOLOv8", "published_yolo:yolov8n"),
        ("yolo v10", "published_yolo:yolov10n"), ("SigLIP", "hf:siglip-so400m-384"),
        ("Faster R-CNN", "torchvision:fasterrcnn_resnet50_fpn"), ("SAM", "hf:sam-vit-huge"),
        ("DiT-XL/2", "published_classes:dit_xl"), ("DiT", "published_classes:dit_xl"),
        ("GCN", "published_graphs:gcn_products"), ("GraphSAGE", "published_graphs:sage_products"),
        ("SchNet", "published_graphs:schnet"), ("StyleGAN2", "published_gans:stylegan2_1024"),
        ("NeRF", "published_fields:nerf"), ("PatchTST", "published_series:patchtst_weather"),
        ("two-tower", "published_tables:two_tower"), ("reranker", "hf:bge-m3"),
        ("TabTransformer", "published_tables:tab_transformer"), ("TrOCR", "hf:trocr-base"),
        ("YOLOv3", "published_detectors:yolov3"), ("pix2pix", "published_gans:pix2pix"),
        ("PointNet", "published_points:pointnet"), ("nnU-Net", "published_volumes:unet3d"),
        ("Florence-2", "hf:florence-2-large"), ("Mask2Former", "hf:mask2former-swin-small"),
    ],
)  # fmt: skip
def test_a_word_of_a_newcomer_means_what_users_expect(typed, entry):
    assert entry_of(typed) == entry


@pytest.mark.parametrize(
    ("typed", "choices"),
    [("cnn", ("mnist-cnn", "resnet50")), ("gpt", ("gpt2", "gpt-oss-20b")),
     ("Llama 3.2", ("llama-3.2-1b", "llama-3.2-3b")), ("ChatGPT", ("gpt-oss-120b",)),
     ("transformer", ("bert-base", "gpt2")), ("PointNet++", ("published_points:pointnet",)),
     ("YOLOv6", ("published_yolo:yolov8m",)),
     ("AlphaFold 3", ("published_folding:alphafold2_384",)),
     ("XTTS-v2", ("published_frames:tacotron2",))],
)  # fmt: skip
def test_a_word_of_several_lists_what_to_choose_from(typed, choices):
    with pytest.raises(UnknownNameError, match="names no single model") as caught:
        entry_of(typed)
    assert all(f"`{choice}`" in caught.value.hint for choice in choices)


def test_what_a_short_name_means_is_a_name():
    """Every entry of the table, and every name that a reading offers instead."""
    for word, alias in words().items():
        assert alias.reading, word
        offered = re.findall(r"`([^`… ]+)`", alias.reading)
        for entry in (*alias.entry.split("|"), *offered):
            scheme, _, name = entry.partition(":")
            if scheme == "hf":
                assert name in names_of("hub").written, word
            elif scheme != "transformer":
                assert entry_of(entry.rpartition(":")[2]), word


def test_short_names_are_keys_and_hide_no_model():
    for name in words():
        assert name == name_key(name)
        assert name not in map(name_key, zoo_facts())


def test_a_short_name_says_how_it_was_read():
    workload = load_workload("BERT")
    assert workload.title == "BERT (as BERT-base)"
    assert workload.reading.startswith("`BERT` is taken as `bert-base`: ")
    assert load_workload("bert-base").reading == load_workload("Bert Base").reading == ""


def test_a_file_that_is_missing_or_of_no_model_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"there is no file `nowhere/plan\.yaml`"):
        entry_of("nowhere/plan.yaml")
    goal = tmp_path / "goal.toml"
    goal.write_text("batch = 1\n", encoding="utf-8")
    with pytest.raises(UnknownNameError, match="describes no model"):
        entry_of(str(goal))


@pytest.mark.parametrize("typed", ["e5-mistral-7b", "Qwen/Qwen3-Reranker-4B"])
def test_what_embeds_or_ranks_texts_reads_them_and_writes_none(typed: str) -> None:
    reader, writer = (load_workload(name, task="infer") for name in (typed, entry_of(typed)))
    assert [one.name for one in reader.passes] == ["forward"]
    assert reader.passes[0].graph is writer.passes[0].graph
    assert writer.generates
    assert not reader.generates
    assert reader.sample_unit == "sequences"


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("m.pt", "weights"), ("runs/best.ckpt", "weights"), ("Model.H5", "weights"),
        ("x.safetensors", "weights"), ("a.tflite", "a program"), ("net.mlpackage", "a program"),
    ],
)  # fmt: skip
def test_a_file_of_weights_is_no_model_of_like_letters(name: str, holds: str) -> None:
    """``m.pt`` was taken as the shortest name with these letters, mpt-7b."""
    with pytest.raises(InvalidInputError, match=f"holds {holds}") as refused:
        entry_of(name)
    assert "package.module:function" in refused.value.hint


@pytest.mark.parametrize(
    ("typed", "sees"),
    [
        ("DeepSeek-R1-Distill-Qwen-32B", False), ("Qwen2-7B-Instruct", False),
        ("openvla-7b", True),
    ],
)  # fmt: skip
def test_what_only_writes_is_not_said_to_take_images(typed: str, sees: bool) -> None:
    assert ("images" in told_reading(typed)) == sees


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-2-7b-hf", "llama-3-8b-instruct"]
)
def test_a_repository_is_the_same_with_the_scheme_of_its_hub(name):
    assert entry_of(f"hf:{name}") == entry_of(name)
    assert told_reading(f"hf:{name}") == told_reading(name)


@pytest.mark.parametrize("name", ["hf:bert", "hf:BertModel", "hf:no/config.json", "hf:llama"])
def test_classes_types_and_files_of_transformers_are_themselves(name):
    assert entry_of(name) == name


@pytest.mark.parametrize("name", ["note.txt", "picture.png", "folder"])
def test_a_path_that_holds_no_model_is_said_to_hold_none(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"x") if "." in name else path.mkdir()
    with pytest.raises(UnknownNameError, match="holds no model") as raised:
        entry_of(str(path))
    assert ".onnx" in raised.value.hint
