"""The child process: loads one model in one engine, runs its cases, and tells the parent what it measured.

One JSON document comes in on standard input, JSON lines go out on standard output:

    {"task": "describe", "backend": NAME, "rpc": ["HOST:PORT", …]}
    {"task": "bandwidth", "backend": NAME or null, "device": ID, "n_threads": 2, "budget_s": 10}
    {"task": "hold", "backend": NAME, "request": {LoadRequest}, "case": {Case}}
    {"task": "quality", "backend": NAME, "unquantised": {LoadRequest}, "quantised": {LoadRequest}}
    {"task": "tokenise", "backend": NAME, "artifact": PATH, "text": TEXT}
    {"task": "run", "backend": NAME, "request": {LoadRequest}, "seed": 1, "prompt_ids": [ID, …] or null,
     "window": null, "is_mixture": false, "demand": {Demand} or null, "allow_partial": false,
     "cases": [{"case": {Case}, "repetitions": 3}, …]}
    {"task": "quantise", "backend": NAME, "source": PATH, "target": PATH, "weight_format": "q4_k_m", "n_threads": 2}
    {"task": "synthesise", "backend": NAME, "preset": NAME, "name": NAME, "target": PATH, "weight_format": "q4_k_m",
     "n_threads": 2}
    {"task": "unpickle", "backend": NAME, "files": [PATH, …], "target": PATH}
    {"task": "serve", "endpoint": "HOST:PORT", "n_threads": 1, "device": "auto"}
"""
