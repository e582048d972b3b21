"""The public names, in the order of their modules; what is here is all that ``import sciscidata`` shows."""

from . import indicators as indicators
from . import plots as plots
from .config import BuildConfig as BuildConfig
from .corpus.folder import CorpusConfig as CorpusConfig
from .corpus.folder import scan_corpus as scan_corpus
from .diagnostics.checks import diagnose as diagnose
from .diagnostics.picture import plot_diagnostics as plot_diagnostics
from .disruption.config import CDConfig as CDConfig
from .disruption.index import compute_cd_index as compute_cd_index
from .disruption.label_confidence import compute_label_confidence as compute_label_confidence
from .engines.engine import engine as engine
from .errors import SciSciDataError as SciSciDataError
from .label_thresholds import LabelThresholds as LabelThresholds
from .novelty.atypicality import compute_atypicality as compute_atypicality
from .novelty.commonness import CommonnessConfig as CommonnessConfig
from .novelty.commonness import compute_commonness as compute_commonness
from .novelty.config import NoveltyConfig as NoveltyConfig
from .novelty.wang_novelty import WangConfig as WangConfig
from .novelty.wang_novelty import compute_wang_novelty as compute_wang_novelty
from .openalex_api.config import ApiConfig as ApiConfig
from .own_label import OwnLabel as OwnLabel
from .pipeline import build as build
from .pipeline import export_labelled as export_labelled
from .pipeline import write_background as write_background
from .release.release import read_release as read_release
from .release.verify import verify as verify
from .sampling.eligibility import EligibilityConfig as EligibilityConfig
from .sampling.split import SplitConfig as SplitConfig
from .sampling.split import draw_split as draw_split
from .scoring import compute_labels as compute_labels
from .sources.labelled import LabelledConfig as LabelledConfig
from .sources.openalex.candidates import OpenAlexConfig as OpenAlexConfig
from .sources.records import RecordsConfig as RecordsConfig
from .sources.records import scan_records as scan_records
from .sources.sciscinet.config import SciSciNetConfig as SciSciNetConfig
from .sources.sciscinet.source import scan_sciscinet as scan_sciscinet
from .sources.snapshot.source import SnapshotConfig as SnapshotConfig
from .sources.synthetic.source import SyntheticConfig as SyntheticConfig
from .sources.synthetic.source import scan_synthetic as scan_synthetic
from .sources.tables.frames import from_tables as from_tables
from .sources.tables.source import TablesConfig as TablesConfig
from .stages import ingest as ingest
from .stages import write_atypicality as write_atypicality
from .stages import write_cd_index as write_cd_index

__version__: str
