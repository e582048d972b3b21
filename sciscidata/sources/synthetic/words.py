"""The vocabulary of the synthetic world: fields with their topics and methods, phrases, and sentence templates.

A slot in braces takes one of its phrases (separated by semicolons) at random. A capital first letter (``{Topic}``)
capitalises it. ``topic`` and ``method`` depend on a work's field. The phrases of ``VOICED`` depend on its hidden kind
and are the only words that carry a signal. No word is the name of a label.
"""

from __future__ import annotations

#: Hidden kinds of works, in the order of their numbers. They say what later works do with a work's references.
KINDS = ("disruptive", "developing", "even-handed")

#: OpenAlex field -> (relative size, topics, methods); topics are plural or mass nouns.
FIELDS: dict[str, tuple[int, str, str]] = {
    "Medicine": (
        190,
        "chronic heart failure; type 2 diabetes; early sepsis; kidney transplantation; breast cancer screening; "
        "hypertension control; stroke rehabilitation; asthma attacks; liver fibrosis; preterm birth; "
        "hip fractures; opioid prescribing",
        "a randomised trial; a prospective cohort; a registry linkage; magnetic resonance imaging; "
        "propensity matching; a case-control design",
    ),
    "Social Sciences": (
        95,
        "school segregation; voter turnout; urban housing; labour migration; public trust; court decisions; "
        "family policies; digital news; neighbourhood crime; teacher training; local government; social mobility",
        "a panel survey; a natural experiment; archival coding; semi-structured interviews; "
        "multilevel regression; a census linkage",
    ),
    "Engineering": (
        100,
        "reinforced concrete beams; wind turbine blades; traffic flows; bearing faults; antenna arrays; "
        "power converters; laser welds; bridge vibrations; robotic grippers; heat exchangers; "
        "composite laminates; railway tracks",
        "finite element analysis; a test rig; model predictive control; fatigue testing; "
        "wireless sensing; a scaled prototype",
    ),
    "Biochemistry, Genetics and Molecular Biology": (
        80,
        "membrane transporters; histone marks; gene regulatory networks; protein folding; ribosome stalling; "
        "telomere repair; enzyme cascades; mitochondrial fission; small RNAs; kinase signalling; "
        "stem cell niches; chromatin loops",
        "cryo-electron microscopy; single-cell sequencing; mass spectrometry; a knockout screen; "
        "isotope labelling; fluorescence imaging",
    ),
    "Computer Science": (
        85,
        "graph embeddings; cache policies; image captions; secure protocols; program repair; sparse attention; "
        "recommender feeds; distributed ledgers; speech recognition; query plans; federated learning; "
        "scene reconstruction",
        "a benchmark suite; an ablation study; contrastive training; formal verification; "
        "a user study; large-scale simulation",
    ),
    "Arts and Humanities": (
        60,
        "medieval manuscripts; oral histories; baroque theatre; colonial archives; lyric poetry; museum collections; "
        "early printing; sacred music; translation practices; film criticism; folk narratives; moral arguments",
        "close reading; archival research; stylometry; a comparative corpus; provenance records; oral testimony",
    ),
    "Environmental Science": (
        50,
        "urban air quality; river sediments; microplastic particles; wetland carbon; soil nitrogen; forest fires; "
        "coastal erosion; drinking water; waste recycling; invasive plants; heavy metals; heat waves",
        "passive samplers; remote sensing; a mesocosm experiment; a mass balance; field transects; a dispersion model",
    ),
    "Physics and Astronomy": (
        60,
        "neutron stars; topological insulators; quantum dots; gravitational lenses; plasma turbulence; cold atoms; "
        "dark matter haloes; spin waves; exoplanet atmospheres; muon decays; optical combs; superconducting films",
        "Monte Carlo sampling; photon counting; X-ray spectroscopy; perturbation theory; "
        "a cryogenic detector; adaptive optics",
    ),
    "Materials Science": (
        50,
        "perovskite films; high-entropy alloys; carbon fibres; grain boundaries; polymer blends; porous ceramics; "
        "lithium anodes; thermal coatings; shape-memory wires; hydrogels; metallic glasses; graphene sheets",
        "electron diffraction; atomic force microscopy; sol-gel synthesis; nanoindentation; "
        "Raman mapping; phase-field modelling",
    ),
    "Agricultural and Biological Sciences": (
        45,
        "pollinator visits; wheat rust; root exudates; fish stocks; bird migration; soil fungi; dairy yields; "
        "seed dormancy; insect resistance; drought tolerance; fruit ripening; grassland species",
        "field trials; a common garden; quantitative trait mapping; camera traps; stable isotopes; a long-term plot",
    ),
    "Chemistry": (
        45,
        "palladium catalysts; chiral amines; metal-organic frameworks; radical cyclisation; ionic liquids; "
        "peptide macrocycles; photoredox reactions; surface adsorbates; hydrogen bonds; aryl halides; "
        "supramolecular cages; oxygen evolution",
        "density functional theory; NMR titration; flow chemistry; cyclic voltammetry; "
        "crystallography; kinetic analysis",
    ),
    "Psychology": (
        45,
        "working memory; adolescent anxiety; moral judgement; reading fluency; grief; visual attention; "
        "parental warmth; workplace burnout; implicit attitudes; sleep quality; self-control; word learning",
        "a longitudinal survey; eye tracking; a diary study; factor analysis; "
        "a preregistered experiment; structured observation",
    ),
    "Business, Management and Accounting": (
        35,
        "family firms; supply contracts; board diversity; brand loyalty; audit fees; remote teams; start-up exits; "
        "service failures; knowledge transfer; online reviews; hotel pricing; corporate disclosure",
        "a survey of managers; case studies; event analysis; structural equations; archival filings; a conjoint design",
    ),
    "Economics, Econometrics and Finance": (
        35,
        "minimum wages; exchange rates; bank runs; carbon taxes; household debt; trade costs; bond spreads; "
        "crop insurance; patent races; pension reforms; inflation expectations; land markets",
        "a difference-in-differences design; vector autoregression; a structural model; "
        "administrative records; a lottery design; a gravity equation",
    ),
    "Earth and Planetary Sciences": (
        35,
        "mantle plumes; glacier retreat; seismic swarms; monsoon onset; ocean eddies; volcanic ash; cave deposits; "
        "lunar craters; groundwater recharge; sea-ice thickness; fault zones; cloud droplets",
        "radar interferometry; zircon dating; a reanalysis product; core drilling; "
        "a seismometer array; satellite altimetry",
    ),
    "Mathematics": (
        30,
        "elliptic curves; random matrices; minimal surfaces; knot invariants; convex bodies; stochastic equations; "
        "modular forms; graph colourings; Banach spaces; tensor ranks; integer partitions; ergodic flows",
        "spectral methods; a counting argument; variational analysis; "
        "algebraic reduction; a probabilistic construction; numerical continuation",
    ),
    "Neuroscience": (
        35,
        "hippocampal replay; dopamine release; cortical columns; synaptic pruning; glial calcium; motor learning; "
        "retinal circuits; pain pathways; circadian clocks; auditory maps; seizure onset; decision signals",
        "two-photon imaging; optogenetics; patch-clamp recording; functional imaging; "
        "electrode arrays; connectome tracing",
    ),
    "Energy": (
        25,
        "battery packs; solar modules; heat pumps; hydrogen storage; grid frequency; biomass boilers; "
        "offshore wind; demand response; fuel cells; electric buses; geothermal wells; gas turbines",
        "techno-economic modelling; accelerated ageing; dispatch optimisation; "
        "smart-meter data; a pilot plant; life-cycle assessment",
    ),
    "Immunology and Microbiology": (
        30,
        "gut bacteria; memory T cells; influenza variants; biofilm growth; antibody escape; phage therapy; "
        "mucosal vaccines; malaria parasites; innate sensors; antibiotic resistance; latent viruses; mast cells",
        "flow cytometry; metagenomic sequencing; a challenge model; serological surveys; "
        "plaque assays; epitope mapping",
    ),
    "Chemical Engineering": (
        20,
        "membrane reactors; fluidised beds; crystallisation columns; emulsion drops; carbon capture; distillation "
        "trains; zeolite beds; bioreactors; slurry transport; foam stability; spray dryers; catalyst pellets",
        "computational fluid dynamics; a bench-scale column; population balances; "
        "process simulation; tracer tests; in-line spectroscopy",
    ),
    "Pharmacology, Toxicology and Pharmaceutics": (
        22,
        "oral absorption; liver toxicity; prodrugs; nanocarriers; opioid receptors; herbal extracts; "
        "drug interactions; inhaled steroids; pesticide exposure; tablet dissolution; ion channel blockers; "
        "kinase inhibitors",
        "population pharmacokinetics; a zebrafish assay; molecular docking; "
        "a dose-escalation trial; chromatography; adverse event reports",
    ),
    "Health Professions": (
        18,
        "gait training; speech therapy; emergency triage; patient handovers; hearing aids; sports injuries; "
        "shoulder pain; dietary advice; radiographic practice; home exercise; balance training; telehealth visits",
        "a crossover trial; motion capture; focus groups; an audit of records; wearable sensors; a rating scale",
    ),
    "Decision Sciences": (
        15,
        "inventory policies; vehicle routes; auction rules; forecast combinations; staff rosters; queueing systems; "
        "group rankings; portfolio choices; project schedules; risk perceptions; facility locations; sales targets",
        "integer programming; Bayesian updating; discrete-event simulation; "
        "a laboratory game; robust optimisation; expert elicitation",
    ),
    "Nursing": (
        15,
        "pressure ulcers; pain assessment; palliative care; shift work; breastfeeding support; medication errors; "
        "dementia wards; hand hygiene; family visits; wound dressings; fall prevention; student placements",
        "a ward survey; participant observation; a quality audit; thematic analysis; "
        "a stepped-wedge trial; a Delphi panel",
    ),
    "Dentistry": (
        10,
        "dental implants; root canals; enamel erosion; gum recession; orthodontic braces; tooth whitening; "
        "jaw fractures; denture adhesives; oral biofilms; caries risk; ceramic crowns; sealants",
        "cone-beam imaging; a split-mouth trial; micro-hardness tests; "
        "salivary sampling; a practice audit; finite element models",
    ),
    "Veterinary": (
        8,
        "canine lymphoma; equine lameness; poultry vaccination; bovine mastitis; feline kidney disease; swine fever; "
        "sheep parasites; wildlife tuberculosis; calf diarrhoea; shelter dogs; hoof lesions; rabies control",
        "a herd survey; necropsy records; ultrasound imaging; serum biochemistry; "
        "a clinic audit; a field vaccination trial",
    ),
}  # fmt: skip

FIELD_WEIGHTS = [weight for weight, _, _ in FIELDS.values()]

#: Names of venues, completed by a topic of their field.
VENUES = (
    "Journal of {}; Annals of {}; {} Letters; International Review of {}; Advances in {}; {} Research; "
    "Studies in {}; Proceedings on {}; Quarterly of {}; {} Reports; Archives of {}; Frontiers of {}"
)

#: Slots that any work may draw from.
COMMON: dict[str, str] = {
    "modifier": "seasonal; regional; long-range; short-term; latent; observed; marginal; cumulative; local; relative; "
    "spatial; temporal; age-related; dose-dependent; low-level; rapid; gradual; recurrent; mean; residual; "
    "combined; paired; early; late",
    "aspect": "stability; variation; structure; dynamics; formation; distribution; onset; persistence; sensitivity; "
    "growth; composition; diversity; strength; recovery; prevalence; reliability",
    "feature": "cost; quality; timing; spread; balance; efficiency; decline; response; coverage; volume; intensity; "
    "accuracy; direction; uptake; range; scale",
    "context": "measurement error; seasonal change; limited budgets; ageing; data quality; early exposure; scarce "
    "resources; external shocks; background noise; competing risks; local climate; supply chains; baseline severity; "
    "human factors; technical drift; selection effects; storage conditions; regional policy; repeated use; sex and age",
    "setting": "under changing conditions; across two decades; in small samples; in large populations; at low "
    "temperature; in mixed groups; under field conditions; in a multi-site setting; with limited data; over a full "
    "year; near critical thresholds; in rural areas; in dense cities; at high resolution; after repeated exposure; "
    "with missing records; in ageing systems; during rapid transitions; under strict constraints; in paired sites; "
    "across income levels; at the margins; in noisy data; beyond the laboratory",
    "count": "12; 18; 24; 31; 36; 42; 48; 57; 64; 73; 85; 96; 110; 128; 146; 163; 187; 212; 240; 275; 318; 364; 420; "
    "512; 640; 768; 905; 1140; 1480; 2050; 3600; 5200",
    "percent": "4; 6; 7; 9; 11; 13; 14; 16; 18; 19; 21; 23; 26; 28; 31; 34; 37; 41; 45; 52",
    "place": "northern Europe; the Andes; coastal Japan; eastern Africa; the Great Plains; southern India",
    "far_place": "the Alps; western Canada; the Baltic region; central Chile; New Zealand; the Mekong basin",
}

#: Slots whose phrases depend on the hidden kind, in the order of ``KINDS``.
VOICED: dict[str, tuple[str, str, str]] = {
    "lead": (
        "discovery of; first observation of; an unexpected origin of; a new account of; direct detection of; "
        "an overlooked cause of; invention of a probe for; rethinking",
        "improved estimation of; further evidence on; refinement of models for; an extended analysis of; "
        "enhanced measurement of; replication and extension of; progress in; better control of",
        "a comparison of; an assessment of; a survey of; an overview of; monitoring of; an evaluation of; "
        "notes on; patterns in",
    ),
    "verb": (
        "uncover; discover; newly identify; redefine; expose; directly test",
        "refine; extend; confirm and sharpen; generalise; optimise; validate",
        "compare; summarise; describe; report on; catalogue; examine",
    ),
    "finding": (
        "a mechanism not seen before; an effect with the opposite sign; a separate class of behaviour; a simple law "
        "behind complex records; a hidden source of variation; a surprising lack of association",
        "a more accurate estimate; the same trend with narrower bounds; an extension of the "
        "standard model; a consistent improvement over the baseline; support for the leading "
        "hypothesis; a faster version of the established procedure",
        "similar values across sites; moderate differences between groups; a mixed picture overall; "
        "no clear preference among procedures; a range of outcomes in practice; a weak association at most",
    ),
    "closing": (
        "makes an earlier debate unnecessary; opens its own line of inquiry; replaces the usual starting point; "
        "suggests that textbooks need revision",
        "strengthens earlier foundations; adds detail to an established theory; "
        "builds on and supports previous reports; brings methods closer to routine use",
        "documents current practice; may help to plan local services; offers a reference for later reviews; "
        "shows where records are incomplete",
    ),
}

#: Slots that keep one phrase through the title and the abstract of a work.
STICKY = ("topic", "method", "place")

TITLE = (
    "{Lead} the {modifier} {aspect} of {topic} {setting}: {feature} and {context}",
    "{Topic} and {context}: {lead} {modifier} {aspect} {setting}",
    "{Lead} {modifier} {aspect} in {topic} using {method} {setting}",
    "{Modifier} {aspect} of {topic} {setting}: {lead} the {feature} in {far_place}",
    "{Lead} {topic} {setting}: {modifier} {aspect} and {feature} in {place}",
    "{Modifier} {aspect} and {feature} of {topic} by {method}: the role of {context}",
)

#: An abstract, sentence by sentence: its templates, and how many works in a hundred have the sentence.
KEPT_PER_CENT = (100, 60, 100, 70, 100, 60, 100)
ABSTRACT = (
    (
        "The {modifier} {aspect} of {topic} has long been studied, yet the {feature} {setting} is open.",
        "Reports on {topic} differ widely in the {modifier} {aspect} and {feature} that they give {setting}.",
        "Much of what is known about {topic} rests on the {modifier} {aspect} rather than on the {feature}.",
    ),
    (
        "Few studies look at {topic} and {context} together, although both involve {modifier} {aspect}.",
        "Records of {topic} from {place} point to {context} and {modifier} {feature} {setting}.",
        "The link between {topic} and {modifier} {aspect} is often taken for granted {setting}.",
    ),
    (
        "Here we {verb} the {modifier} {aspect} of {topic} by {method}, with attention to {feature} and {context}.",
        "We use {method} to {verb} the {aspect} of {topic} {setting}, and relate it to {modifier} {feature}.",
        "With {method} we {verb} the {modifier} {aspect} of {topic} and the role of {context}.",
    ),
    (
        "In total {count} cases from {place} were followed, and {percent} per cent were excluded for missing data.",
        "The data cover {count} units in {place} and {count} in {far_place}, observed {setting}.",
        "Measurements were repeated {count} times {setting}, with an error of about {percent} per cent.",
    ),
    (
        "The results show {finding}: the {modifier} {aspect} of {topic} changes by {percent} per cent {setting}.",
        "We find {finding}, which holds {setting} and explains {percent} per cent of the {modifier} {aspect}.",
        "For {topic} the analysis gives {finding}, with {percent} per cent {modifier} {feature} {setting}.",
    ),
    (
        "A second analysis of {topic} in {far_place} points to {finding}, at least for {modifier} {aspect}.",
        "Checks on {count} further cases give a {modifier} {feature} that is {percent} per cent larger {setting}.",
        "The {modifier} {aspect} of {topic} was {percent} per cent lower {setting}, and the {feature} was stable.",
        "We also {verb} the {aspect} of {topic} in {far_place}, where {count} records of the {feature} exist.",
        "Limits remain: data on {topic} {setting} were rare, and {modifier} {feature} was not measured directly.",
        "Code and data on the {modifier} {aspect} of {topic} {setting} are available for further use.",
    ),
    (
        "This work {closing}, and its view of the {aspect} of {topic} can be tested {setting}.",
        "Together, the evidence on {topic} {closing} and points to {modifier} {aspect} {setting}.",
        "Beyond {topic}, the study {closing} wherever {modifier} {aspect} and {context} matter {setting}.",
    ),
)
