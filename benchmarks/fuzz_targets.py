"""Every kind of input that benchmarks/fuzz.py knows."""

import fuzz_formats
import fuzz_integrations
import fuzz_media
import fuzz_models
import fuzz_page
import fuzz_runs

KINDS = {
    **fuzz_media.KINDS,
    **fuzz_models.KINDS,
    **fuzz_runs.KINDS,
    **fuzz_formats.KINDS,
    **fuzz_page.KINDS,
    **fuzz_integrations.KINDS,
}
