"""Which embedding model is in force, by the settings."""

from dataclasses import dataclass
from pathlib import Path

from omniroute_litellm.embedding.base import Embedder
from omniroute_litellm.embedding.remote import RemoteEmbedder
from omniroute_litellm.embedding.static import StaticEmbedder
from omniroute_litellm.embedding.transformers import TransformersEmbedder
from omniroute_litellm.model_calls import ModelCalls
from omniroute_litellm.settings import Settings
from omniroute_litellm.variables import Variables


@dataclass(frozen=True, slots=True)
class Choice:
    """The model in force, None when there is none; then ``reason`` and ``hint`` say why.

    With a model a reason says what was passed over for it. Without either the operator wants no
    model: words alone are then no fault.
    """

    embedder: Embedder | None
    reason: str | None = None
    hint: str = ""


class EmbeddingSources:
    """Makes each model once, when settings first choose it. Loads and calls nothing itself."""

    def __init__(self, variables: Variables, calls: ModelCalls | None) -> None:
        self._variables = variables
        self._calls = calls
        self._made: dict[tuple[str, str], Embedder] = {}

    def choose(self, settings: Settings) -> Choice:
        """Return the model that the settings ask for.

        ``auto`` takes the named remote model when it can be called, else the look-up table, else
        the transformer, as far as they are enabled. It never picks a paid model by itself.
        """
        wanted = settings.embedding_source
        if wanted == "static":
            return Choice(self._static())
        if wanted == "transformers":
            return Choice(self._transformers())
        model = settings.embedding_provider_model
        remote = self._remote(model) if model or wanted == "remote" else Choice(None)
        if remote.embedder is not None or wanted == "remote":
            return remote
        if settings.static_enabled:
            return Choice(self._static(), remote.reason, remote.hint)
        if settings.transformers_enabled:
            return Choice(self._transformers(), remote.reason, remote.hint)
        return remote

    def _static(self) -> Embedder:
        named = self._variables.static_model
        if not named:
            return self._once("static", "", StaticEmbedder())
        folder = Path(named).expanduser()
        if not folder.is_dir():
            folder = self._variables.model_directory / named
        return self._once("static", named, StaticEmbedder(folder, model=named))

    def _transformers(self) -> Embedder:
        named = self._variables.transformers_model
        made = TransformersEmbedder(named, cache=self._variables.model_directory)
        return self._once("transformers", named, made)

    def _remote(self, model: str | None) -> Choice:
        if not model:
            return Choice(None, "model_unnamed", "name a model in embeddingProviderModel")
        if self._calls is None:
            return Choice(
                None, "proxy_missing", "remote models answer inside of the LiteLLM proxy alone"
            )
        reason = self._calls.reason_against(model)
        if reason is not None:
            hint = f"add {model} to the proxy's model list, or set its provider's key"
            return Choice(None, reason, hint)
        return Choice(self._once("remote", model, RemoteEmbedder(self._calls, model)))

    def _once(self, source: str, model: str, made: Embedder) -> Embedder:
        return self._made.setdefault((source, model), made)
