"""A port of operators with the service's own limits on requests, and a servicer of the test."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from allocator.contract.admin_pb2_grpc import add_AdminServicer_to_server
from allocator.service import listening
from allocator.service.config import ListenSection
from allocator.service.operators.request_limits import RequestLimits
from allocator.service.rights import Rights


def limited_port(
    address: str,
    servicer: Any,  # noqa: ANN401 - a partial servicer
    *,
    shared: bool,
) -> AbstractAsyncContextManager[int]:
    """Serve on an address; `shared` is whether masters use the port, too."""
    return listening._port(
        ListenSection(),
        "address" if shared else "operators",
        address,
        [lambda server: add_AdminServicer_to_server(servicer, server)],
        RequestLimits(Rights(None), lambda *_: None, shared=shared),
    )
