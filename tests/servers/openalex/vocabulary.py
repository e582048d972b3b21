"""The names OpenAlex accepts, in the order its error messages list them (recorded in March 2026)."""

# ruff: noqa: SIM905 - as list literals, these names would fill 250 lines
from __future__ import annotations

#: Every ``filter=`` field of /works that the message about an unknown one lists; far more than this server serves.
WORK_FILTERS = """
    abstract.search abstract.search.exact apc_list.currency apc_list.provenance apc_list.value
    apc_list.value_usd apc_paid.currency apc_paid.provenance apc_paid.value apc_paid.value_usd author.id
    author.orcid authors_count authorships.affiliations.institution_ids authorships.author.id
    authorships.author.orcid authorships.countries authorships.institutions.continent
    authorships.institutions.country_code authorships.institutions.id authorships.institutions.is_global_south
    authorships.institutions.lineage authorships.institutions.ror authorships.institutions.type
    authorships.is_corresponding awards.doi awards.funder_award_id awards.funder_display_name awards.funder_id
    awards.id best_oa_location.is_accepted best_oa_location.is_oa best_oa_location.is_published
    best_oa_location.landing_page_url best_oa_location.license best_oa_location.license_id
    best_oa_location.raw_type best_oa_location.source.host_organization
    best_oa_location.source.host_organization_lineage best_oa_location.source.id
    best_oa_location.source.is_in_doaj best_oa_location.source.is_oa best_oa_location.source.issn
    best_oa_location.source.type best_oa_location.version best_open_version biblio.first_page biblio.issue
    biblio.last_page biblio.volume citation_normalized_percentile.is_in_top_10_percent
    citation_normalized_percentile.is_in_top_1_percent citation_normalized_percentile.value cited_by
    cited_by_count cited_by_percentile_year.max cited_by_percentile_year.min cites concept.id concepts.id
    concepts.wikidata concepts_count corresponding_author_ids corresponding_institution_ids
    countries_distinct_count created_date datasets default.search display_name display_name.search
    display_name.search.exact doi doi_starts_with from_created_date from_publication_date fulltext.search
    fulltext.search.exact fulltext_origin funders.id fwci has_abstract has_content.grobid_xml has_content.pdf
    has_doi has_embeddings has_fulltext has_oa_accepted_or_published_version has_oa_submitted_version
    has_old_authors has_orcid has_pdf_url has_pmcid has_pmid has_raw_affiliation_strings has_references ids.mag
    ids.openalex ids.pmcid ids.pmid indexed_in institution.id institution_assertions.country_code
    institution_assertions.id institution_assertions.lineage institution_assertions.ror
    institution_assertions.type institutions.continent institutions.country_code institutions.id
    institutions.is_global_south institutions.ror institutions.type institutions_distinct_count is_corresponding
    is_oa is_paratext is_retracted is_xpac journal keyword.search keywords.id language locations.is_accepted
    locations.is_oa locations.is_published locations.landing_page_url locations.license locations.license_id
    locations.raw_type locations.source.has_issn locations.source.host_institution_lineage
    locations.source.host_organization locations.source.host_organization_lineage locations.source.id
    locations.source.is_core locations.source.is_in_doaj locations.source.is_oa locations.source.issn
    locations.source.publisher_lineage locations.source.type locations.version locations_count mag mag_only
    oa_status open_access.any_repository_has_fulltext open_access.is_oa open_access.oa_status openalex
    openalex_id pmcid pmid primary_location.is_accepted primary_location.is_oa primary_location.is_published
    primary_location.landing_page_url primary_location.license primary_location.license_id
    primary_location.raw_type primary_location.source.has_issn primary_location.source.host_institution_lineage
    primary_location.source.host_organization primary_location.source.host_organization_lineage
    primary_location.source.id primary_location.source.is_core primary_location.source.is_in_doaj
    primary_location.source.is_oa primary_location.source.issn primary_location.source.publisher_lineage
    primary_location.source.type primary_location.version primary_topic.domain.id primary_topic.field.id
    primary_topic.id primary_topic.subfield.id publication_date publication_year raw_affiliation_strings
    raw_affiliation_strings.search raw_author_name.search referenced_works referenced_works_count related_to
    repository semantic.search sustainable_development_goals.id sustainable_development_goals.score title.search
    title.search.exact title_and_abstract.search title_and_abstract.search.exact to_created_date
    to_publication_date to_updated_date topics.domain.id topics.field.id topics.id topics.subfield.id
    topics_count type type_crossref updated_date version
""".split()

#: Accepted without being listed.
UNLISTED_FILTERS = frozenset({"from_updated_date"})

#: Need a plan; a free key is told so with a 429.
PAID_FILTERS = frozenset(
    {"created_date", "from_created_date", "to_created_date", "updated_date", "from_updated_date", "to_updated_date"}
)

#: Every ``select=`` field of /works, in the order in which an answer holds them.
WORK_FIELDS = """
    id doi title display_name relevance_score publication_year publication_date ids language primary_location
    sources type type_crossref indexed_in open_access authorships institution_assertions institutions
    countries_distinct_count institutions_distinct_count corresponding_author_ids corresponding_institution_ids
    apc_list apc_paid fwci is_authors_truncated has_fulltext fulltext_origin cited_by_count
    citation_normalized_percentile cited_by_percentile_year biblio is_retracted is_paratext is_xpac
    primary_topic topics keywords concepts mesh locations_count locations best_oa_location
    sustainable_development_goals awards funders datasets versions has_content content_urls
    referenced_works_count referenced_works related_works abstract_inverted_index cited_by_api_url
    counts_by_year updated_date created_date
""".split()

#: What this server derives of a source; OpenAlex has more.
SOURCE_FIELDS = """
    id issn_l issn display_name host_organization host_organization_name works_count ids type
""".split()

SOURCE_FILTERS = "display_name ids.openalex issn openalex openalex_id type works_count".split()

#: Query parameters; any other name is a 400.
PARAMETERS = """
    api-key api_key bypass_cache corpus cursor data-version data_version filter format group-by group_by
    include-xpac include_xpac mailto page per-page per_page q sample seed search select sort
""".split()

#: Crossref's words, which ``type`` held until 2023, and the ones it holds now.
TYPES_SINCE_2023 = {
    "journal-article": "article",
    "proceedings-article": "article",
    "posted-content": "preprint",
    "monograph": "book",
    "edited-book": "book",
    "reference-book": "book",
    "book-section": "book-chapter",
    "book-part": "book-chapter",
    "journal-issue": "paratext",
    "journal-volume": "paratext",
    "journal": "paratext",
    "proceedings": "paratext",
    "report-series": "report",
}

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "pt": "Portuguese", "zh": "Chinese"}
