"""Run SkyRL's Tinker API in the server's interpreter, with patches for the pinned SDK that SkyRL 0.4.0 lacks.

Run as a file, never imported: ``python skyrl_process.py api --port 8000 ...`` starts the API, which starts this file
once more as ``engine``. Neither sciscirl nor sciscidata is installed for this interpreter.

Each patch names the failure that it cures; remove it once SkyRL has no such failure.
"""

# SkyRL, FastAPI and SQLModel are in the server's environment only, where no type checker looks.
# pyright: basic, reportMissingImports=false, reportInvalidTypeForm=false

import logging
import os
import signal
import sys
import tarfile
import threading
import time
import typing
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

logger = logging.getLogger("skyrl.sciscirl")

#: The engine makes this file once the model is loaded; the API answers "healthy" long before.
READY_FILE = "SCISCIRL_READY_FILE"
#: Models whose training ended, kept in adapter slots for sampling.
REVIVED_MODELS = 1
#: Tokens to which shorter texts are padded.
SHORTEST = 256
SECONDS_TO_STOP = 10


def mend_typed_dict() -> None:
    """Let SkyRL be imported: pydantic refuses typing.TypedDict before Python 3.12, PydanticUserError."""
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict


def mend_tarfile() -> None:
    """Let SkyRL unpack checkpoints: extractall has no filter before Python 3.11.4, as Debian 12's, TypeError."""
    if hasattr(tarfile, "data_filter"):
        return
    extract = tarfile.TarFile.extractall

    def extractall(self: tarfile.TarFile, path: Path, *, filter: str) -> None:
        for member in self.getmembers():
            path_in = Path(member.name)
            if not (member.isreg() or member.isdir()) or ".." in path_in.parts or path_in.is_absolute():
                raise tarfile.ReadError(f"{member.name} in a checkpoint: not a file or folder below it")
        extract(self, path)

    tarfile.TarFile.extractall = extractall  # pyright: ignore[reportAttributeAccessIssue]


def stop_when_the_launcher_is_gone() -> None:
    """End the API and its engine when standard input closes, as it does even if the launcher is killed."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)  # the API stops its engine
        time.sleep(SECONDS_TO_STOP)
        if hasattr(os, "killpg"):
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def serve_api() -> None:
    """Start the HTTP server with patched routes."""
    import argparse

    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

    # SkyRL starts its engine with `uv run`; uv need not be there, and this environment is complete.
    api._build_uv_run_cmd_engine = lambda _, config: [sys.executable, "-P", __file__, "engine", *config_to_argv(config)]
    patch_routes(api)
    parser = argparse.ArgumentParser(prog="skyrl_process.py api")
    add_model(parser, EngineConfig)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options = vars(parser.parse_args())
    host, port = options.pop("host"), options.pop("port")
    api.app.state.engine_config = EngineConfig.model_validate(options)
    uvicorn.run(api.app, host=host, port=port, log_level="warning", timeout_keep_alive=75, timeout_graceful_shutdown=2)


def patch_routes(api: ModuleType) -> None:
    """Replace or add the three requests that SDK 0.38 makes and SkyRL does not understand, and that for an archive."""
    from fastapi import Depends
    from skyrl.tinker import types
    from skyrl.tinker.db_models import ModelDB, SessionDB
    from sqlmodel import select

    Reply = dict[str, object]
    DatabaseSession = Annotated[api.AsyncSession, Depends(api.get_session)]

    class LoadWeightsRequest(api.LoadWeightsRequest):
        model_id: str | None = None
        session_id: str | None = None
        model_seq_id: int | None = None

    async def asample(request: api.SampleRequest, req: api.Request, session: DatabaseSession) -> Reply:
        # SDK >= 0.26 asserts one id for every sample in the reply.
        reply = await api.asample(request, req, session)
        ids = [f"{reply.request_id}-{number}" for number in range(request.num_samples)]
        return {**reply.model_dump(), "sample_sequence_ids": ids}

    async def load_weights(request: LoadWeightsRequest, req: api.Request, session: DatabaseSession) -> Reply:
        # SDK 0.38 resumes with this one request. The model is to be made from the checkpoint's own settings, under an
        # id that the SDK derives in the same way. SkyRL wants it made beforehand.
        if request.model_id is None:
            request.model_id = f"{request.session_id}:train:{request.model_seq_id}"
            path = types.TinkerPath.parse(request.path)
            if path is None:
                raise api.HTTPException(400, f"{request.path} is not tinker://MODEL/weights/CHECKPOINT")
            source = await api.get_model(session, path.primary_id)
            settings = types.LoraConfig.model_validate(source.lora_config)
            created = await api.create_future(
                session, types.RequestType.CREATE_MODEL, request.model_id, types.CreateModelInput(lora_config=settings)
            )
            session.add(
                ModelDB(
                    model_id=request.model_id,
                    base_model=source.base_model,
                    lora_config=source.lora_config,
                    status="created",
                    request_id=created,
                    session_id=request.session_id,
                )
            )
            await session.flush()
        return (await api.load_weights(request, req, session)).model_dump()

    async def finish(session_id: str, session: DatabaseSession) -> Reply:
        # The SDK ends its session here, which frees its adapter slots now and not after five minutes.
        session_row = await session.get(SessionDB, session_id)
        if session_row is None:
            raise api.HTTPException(404, "Session not found")
        session_row.status = "finished"
        models = await session.exec(select(ModelDB).where(ModelDB.session_id == session_id))
        for model in models.all():
            await api.create_future(session, types.RequestType.UNLOAD_MODEL, model.model_id, types.UnloadModelInput())
        await session.commit()
        return {}

    async def archive(unique_id: str, checkpoint_id: str, req: api.Request, session: DatabaseSession) -> object:
        # SkyRL takes no id with a colon here. A model that was made from a checkpoint has one (see load_weights).
        return await api.download_checkpoint_archive(req, unique_id, checkpoint_id, session)

    for add, path, handler in (
        (api.app.post, "/api/v1/asample", asample),
        (api.app.post, "/api/v1/load_weights", load_weights),
        (api.app.post, "/api/v1/sessions/{session_id}/finish", finish),
        (api.app.get, "/api/v1/training_runs/{unique_id}/checkpoints/{checkpoint_id}/archive", archive),
    ):
        routes = api.app.router.routes
        routes[:] = [route for route in routes if getattr(route, "path", None) != path]
        add(path)(handler)


def apply_adapters_cheaply_on_a_cpu() -> None:
    """Multiply each sequence with its own adapter: ragged_dot on a CPU takes 17 times as long for 16 adapters."""
    import jax
    from jax import numpy as jnp
    from skyrl.tx.layers.lora import LoRAEmbed, LoRAMixin

    def apply_lora(
        self: LoRAMixin, x: jax.Array, base_output: jax.Array, adapter_indices: jax.Array | None
    ) -> jax.Array:
        if self.max_lora_adapters == 0 or adapter_indices is None:
            return base_output
        a, b, scaling = self.lora_A[...], self.lora_B[...], self.lora_scaling[...][adapter_indices]
        _, n_in, rank = a.shape
        if isinstance(self, LoRAEmbed):
            low = a[adapter_indices[:, None], x] @ b[adapter_indices]
        elif x.ndim == 3:
            low = x @ a[adapter_indices] @ b[adapter_indices]
        else:  # tokens of several sequences, each with its own index: one product with some adapters, then the mask

            def multiply(some: jax.Array) -> jax.Array:
                is_own = (adapter_indices[:, None] == some).astype(x.dtype)
                low = (x @ a[some].swapaxes(0, 1).reshape(n_in, -1)).reshape(len(x), -1, rank) * is_own[..., None]
                return low.reshape(len(x), -1) @ b[some].reshape(-1, b.shape[-1])

            # As a rule all are of one model, or of adapter 0, whose rows fill a pass. So compute 2 adapters, not all.
            first, last = adapter_indices.min(), adapter_indices.max()
            are_two = ((adapter_indices == first) | (adapter_indices == last)).all()
            two = jnp.stack([first, jnp.where(first == last, -1, last)])  # -1: of no token
            low = jax.lax.cond(are_two, lambda: multiply(two), lambda: multiply(jnp.arange(len(a))))
        return base_output + low * scaling.reshape(-1, *[1] * (low.ndim - 1))

    if jax.default_backend() == "cpu":
        LoRAMixin.apply_lora = apply_lora


def pad_training_passes(batch_size: int) -> None:
    """Give the last pass of a step the size of the others. Compiling a new one takes ten seconds for a tiny model.

    The rows that are added belong to adapter 0, the base model, which is never trained.
    """
    from skyrl.backends import jax as backend

    pad = backend.pad_to_fsdp
    backend.pad_to_fsdp = lambda rows, _: pad(rows, batch_size)


def pad_short_texts() -> None:
    """Give short texts one length. SkyRL compiles each length for seconds; a longer pass of few tokens costs less."""
    from skyrl.backends import jax as backend

    round_up = backend.round_up_seq_len
    backend.round_up_seq_len = lambda length: max(SHORTEST, round_up(length))


def repeat_the_first_answer() -> None:
    """Fill a sampling pass with copies of its first answer. SkyRL's empty prompts would hardly ever end."""
    from skyrl.backends import jax as backend

    backend.pad = lambda rows, size, *, fill: rows + [rows[0]] * (size - len(rows))


def run_engine() -> None:
    """Load the model and work off requests."""
    import argparse

    from skyrl.tinker import types
    from skyrl.tinker.config import EngineConfig, add_model
    from skyrl.tinker.db_models import FutureDB, ModelDB, RequestStatus, SessionDB
    from skyrl.tinker.engine import TinkerEngine
    from sqlmodel import Session, select, update

    class Engine(TinkerEngine):
        """Also samples from checkpoints of models that are no longer loaded, as Tinker does; is cheap while idle."""

        def __init__(self, config: EngineConfig) -> None:
            super().__init__(config)
            self.revived: OrderedDict[str, float] = OrderedDict()  # when each was last asked, the oldest first
            self.refused: dict[str, str] = {}

        def process_pending_requests(self) -> None:
            # SkyRL asks for each kind of request ten times a second, which takes a twentieth of a core while idle.
            pending = select(FutureDB.request_id).where(FutureDB.status == RequestStatus.PENDING).limit(1)
            while True:
                with Session(self.db_engine) as session:
                    is_due = session.exec(pending).first() is not None
                if is_due or time.time() - self._last_cleanup_time > self.config.session_cleanup_interval_sec:
                    self.process_pending_requests_once()
                time.sleep(0.1)

        def cleanup_stale_sessions(self) -> int:
            # A run of less than ten seconds sends no heartbeat. Its session would never end and keep its slot.
            unheard = update(SessionDB).where(SessionDB.last_heartbeat_at.is_(None))
            with Session(self.db_engine) as session:
                session.exec(unheard.values(last_heartbeat_at=SessionDB.created_at))
                session.commit()
            # Nor does what is no longer asked keep one: it would be loaded again.
            while self.revived and time.time() - next(iter(self.revived.values())) > self.config.session_timeout_sec:
                self._forget_oldest()
            return super().cleanup_stale_sessions()

        def process_create_model(self, model_id: str, request_data: types.CreateModelInput) -> object:
            try:
                return super().process_create_model(model_id, request_data)
            except ValueError as error:  # returned: SkyRL logs what is raised with all variables, which takes seconds
                self.refused[model_id] = str(error)
                logger.warning("model %s is refused: %s", model_id, error)
                return types.ErrorResponse(error=str(error), status="failed")

        def process_load_weights(self, model_id: str, request_data: types.LoadWeightsInput) -> object:
            # A resuming client asks for both and gets this answer only: "not loaded" would not say why.
            if model_id in self.refused:
                return types.ErrorResponse(error=self.refused.pop(model_id), status="failed")
            return super().process_load_weights(model_id, request_data)

        def process_sample(self, requests: dict[str, Any]) -> dict[str, Any]:
            # Tinker states null for a prompt's first token, SkyRL nothing: a KL penalty fails, its sizes differ by one.
            answers = super().process_sample(requests)
            for answer in answers.values():
                if getattr(answer, "prompt_logprobs", None) is not None:
                    answer.prompt_logprobs = [None, *answer.prompt_logprobs]
            return answers

        def _filter_valid_requests(self, requests: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            failed, rest, sampled = {}, dict(requests), set()
            for request_id, (model_id, asked) in requests.items():
                if model_id and isinstance(asked, types.SampleInput) and not self.backend.has_model(model_id):
                    if sampled & self.revived.keys():  # it would replace a model that this batch samples from
                        del rest[request_id]  # it stays pending, and comes first in the next
                        continue
                    try:
                        self._revive(model_id)
                    except ValueError as error:  # no slot is free; unhandled, it would end the engine
                        del rest[request_id]
                        # Samples run before earlier ends of sessions: it stays pending until those are done.
                        if not self._is_slot_due():
                            failed[request_id] = types.ErrorResponse(error=str(error), status="failed")
                if model_id in self.revived:
                    self.revived[model_id] = time.time()
                    self.revived.move_to_end(model_id)
                sampled.add(model_id)
            more, valid = super()._filter_valid_requests(rest)
            return failed | more, valid

        def _is_slot_due(self) -> bool:
            """Say whether a model is about to be unloaded because its session ended."""
            due = select(FutureDB.request_id).where(
                FutureDB.status == RequestStatus.PENDING, FutureDB.request_type == types.RequestType.UNLOAD_MODEL
            )
            with Session(self.db_engine) as session:
                return session.exec(due.limit(1)).first() is not None

        def _forget_oldest(self) -> None:
            oldest, _ = self.revived.popitem(last=False)
            if self.backend.has_model(oldest):
                self.backend.delete_model(oldest)

        def _revive(self, model_id: str) -> None:
            with Session(self.db_engine) as session:
                known = session.get(ModelDB, model_id)
            if known is None:
                return
            while len(self.revived) >= REVIVED_MODELS:
                self._forget_oldest()
            self.backend.create_model(model_id, types.LoraConfig.model_validate(known.lora_config))
            self.revived[model_id] = time.time()
            logger.info("model %s is loaded again, for sampling", model_id)

    parser = argparse.ArgumentParser(prog="skyrl_process.py engine")
    add_model(parser, EngineConfig)
    config = EngineConfig.model_validate(vars(parser.parse_args()))
    apply_adapters_cheaply_on_a_cpu()
    pad_training_passes(config.backend_config["train_micro_batch_size"])
    pad_short_texts()
    repeat_the_first_answer()
    engine = Engine(config)
    with Session(engine.db_engine) as session:  # no client waits for requests to an earlier server
        answer = types.ErrorResponse(error="the server was restarted", status="failed").model_dump_json()
        overdue = update(FutureDB).where(FutureDB.status == RequestStatus.PENDING)
        session.exec(overdue.values(status=RequestStatus.FAILED, result_data=answer))
        session.commit()
    Path(os.environ[READY_FILE]).touch()
    engine.run()


if __name__ == "__main__":
    mend_typed_dict()
    mend_tarfile()
    if sys.argv.pop(1) == "engine":
        run_engine()
    else:
        stop_when_the_launcher_is_gone()
        serve_api()
