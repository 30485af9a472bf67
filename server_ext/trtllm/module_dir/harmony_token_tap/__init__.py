"""What `trtllm-serve … --custom_module_dirs <this directory>` imports before it serves: it loads the extension.

It stands alone in its directory because TensorRT-LLM puts that directory in front of the module search path.
"""

from server_ext.trtllm.hook import install_in_new_servers

install_in_new_servers()
