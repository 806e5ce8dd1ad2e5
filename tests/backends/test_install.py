from backends.install import install_line, rebuild_line


def test_the_install_line_is_the_shells_own() -> None:
    assert install_line("llama.cpp", "nvidia", "Linux") == (
        'CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir llama-cpp-python'
    )
    assert install_line("llama.cpp", "nvidia", "Windows") == (
        '$env:CMAKE_ARGS = "-DGGML_CUDA=on"; pip install --force-reinstall --no-cache-dir llama-cpp-python'
    )
    assert "METAL" in (install_line("llama.cpp", "apple", "Darwin") or "")
    assert install_line("mlx", "amd", "Linux") is None, "MLX has no build for it"


def test_the_rebuild_line_is_the_usual_gpus() -> None:
    line = 'CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir llama-cpp-python'
    assert rebuild_line("Linux").startswith(line)
    assert rebuild_line("Darwin") == line.replace("CUDA", "METAL")
