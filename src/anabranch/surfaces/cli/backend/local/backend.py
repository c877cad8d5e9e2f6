"""The backend over a store of this machine. A verb loads only the topics that it asks about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.local.store import LocalStore

if TYPE_CHECKING:
    from anabranch.surfaces.cli.backend import port


class LocalBackend:
    by_token = False

    def __init__(self, settings: Settings, actor: str = "") -> None:
        self._store = LocalStore(settings, actor)

    @property
    def definitions(self) -> port.DefinitionBackend:
        from anabranch.surfaces.cli.backend.local.definitions import LocalDefinitionBackend

        return LocalDefinitionBackend(self._store)

    @property
    def catalog(self) -> port.CatalogBackend:
        from anabranch.surfaces.cli.backend.local.definitions import LocalCatalogBackend

        return LocalCatalogBackend(self._store)

    @property
    def templates(self) -> port.TemplateBackend:
        from anabranch.surfaces.cli.backend.local.definitions import LocalTemplateBackend

        return LocalTemplateBackend(self._store)

    @property
    def runs(self) -> port.RunBackend:
        from anabranch.surfaces.cli.backend.local.runs import LocalRunBackend

        return LocalRunBackend(self._store)

    @property
    def sessions(self) -> port.SessionBackend:
        from anabranch.surfaces.cli.backend.local.sessions import LocalSessionBackend

        return LocalSessionBackend(self._store)

    @property
    def webhooks(self) -> port.WebhookBackend:
        from anabranch.surfaces.cli.backend.local.webhooks import LocalWebhookBackend

        return LocalWebhookBackend(self._store)

    @property
    def schedules(self) -> port.ScheduleBackend:
        from anabranch.surfaces.cli.backend.local.schedules import LocalScheduleBackend

        return LocalScheduleBackend(self._store)

    @property
    def triggers(self) -> port.TriggerBackend:
        from anabranch.surfaces.cli.backend.local.triggers import LocalTriggerBackend

        return LocalTriggerBackend(self._store)

    @property
    def aliases(self) -> port.AliasBackend:
        from anabranch.surfaces.cli.backend.local.aliases import LocalAliasBackend

        return LocalAliasBackend(self._store)

    @property
    def limits(self) -> port.LimitBackend:
        from anabranch.surfaces.cli.backend.local.limits import LocalLimitBackend

        return LocalLimitBackend(self._store)

    @property
    def credentials(self) -> port.CredentialBackend:
        from anabranch.surfaces.cli.backend.local.access import LocalCredentialBackend

        return LocalCredentialBackend(self._store)

    @property
    def tokens(self) -> port.TokenBackend:
        from anabranch.surfaces.cli.backend.local.access import LocalTokenBackend

        return LocalTokenBackend(self._store)

    @property
    def participants(self) -> port.ParticipantBackend:
        from anabranch.surfaces.cli.backend.local.participants import LocalParticipantBackend

        return LocalParticipantBackend(self._store)

    @property
    def cluster(self) -> port.ClusterBackend:
        from anabranch.surfaces.cli.backend.local.cluster import LocalClusterBackend

        return LocalClusterBackend(self._store)
