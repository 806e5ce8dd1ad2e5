"""What a GGUF file says that its weights are."""


def file_type_name(number: int) -> str | None:
    """A `general.file_type` by its usual name: "bf16", "q4_k_m", "f32".

    Returns:
        None: the number is none that gguf knows.
    """
    from gguf import LlamaFileType  # an extra, like every engine

    names = {file_type.value: file_type.name for file_type in LlamaFileType}
    name = names.get(number)
    return name and name.removeprefix("ALL_").removeprefix("MOSTLY_").lower()
