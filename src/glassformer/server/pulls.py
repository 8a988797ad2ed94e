"""Models that the studio fetches from the hub: each a job in a process of its own, with its progress."""

from pathlib import Path
from typing import Any

from glassformer.errors import GlassError
from glassformer.server.errors import ApiError, invalid, jobs_off
from glassformer.server.jobs import JOB_ID, Job, Jobs

SHOWN = 8  # downloads that the page lists, the latest ones
GRACE = 5.0  # seconds for a process to end; what it fetched is kept in any case


class Pulls:
    """The downloads of a studio. Their jobs have a folder of their own: no other server takes them over."""

    def __init__(self, home: Path | None, *, offline: bool = False) -> None:
        """Without a home there are none. `offline`: the machine must not use its network."""
        self.offline = offline
        self.jobs = None if home is None else Jobs(home / "studio", serve=lambda job, folder: None)

    def start(self) -> None:
        """Go on with what an earlier studio did not finish."""
        if self.jobs is not None:
            self.jobs.start()

    def close(self) -> None:
        """End the process that runs; the next studio goes on with it."""
        if self.jobs is not None:
            self.jobs.close(GRACE)

    def begin(self, name: str) -> dict[str, Any]:
        """Fetch a model by its id on the hub; one that is on its way already is not begun again."""
        jobs = self._jobs()
        for job in jobs.list():
            if job.about["model"] == name and job.progress.end is None:
                return self._shown(job)
        try:
            return self._shown(jobs.pull(name, offline=self.offline))
        except GlassError as error:
            raise invalid("name", str(error)) from None

    def cancel(self, id: str) -> dict[str, Any]:
        """End a download; what was fetched is kept, and found when it is asked for again."""
        jobs = self._jobs()
        job = jobs.find(id) if JOB_ID.fullmatch(id) else None
        if job is None:
            raise ApiError(404, "there is no such download", param="id", code="job_not_found")
        if job.progress.end is None:
            jobs.cancel(job)
        return self._shown(job)

    def listed(self) -> list[dict[str, Any]]:
        """The latest downloads, and how far they are; the newest of each model."""
        if self.jobs is None:
            return []
        latest = {str(job.about["model"]): job for job in self.jobs.list()}
        return [self._shown(job) for job in list(latest.values())[-SHOWN:]]

    def _jobs(self) -> Jobs:
        if self.jobs is None:
            raise jobs_off()
        return self.jobs

    def _shown(self, job: Job) -> dict[str, Any]:
        jobs, progress = self._jobs(), job.progress
        done, total = progress.fetched
        error = "" if progress.error is None else str(progress.error.get("message", ""))
        about = {"id": job.id, "name": str(job.about["model"]), "stage": jobs.status(job)}
        return about | {"done": done, "total": total, "error": error}
