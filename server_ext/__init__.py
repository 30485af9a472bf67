"""What belongs on the server's side: token batches next to a server's own Responses events, and a server that replays recorded streams.

`server_ext.replay` is the replay server. The package needs nothing but the standard library; running the replay server over a socket takes
uvicorn (`pip install 'harmony-stream-client[demo]'`).
"""
