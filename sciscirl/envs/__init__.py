"""The task as environments of the Tinker cookbook: one paper, one answer, one reward.

Read first: ``env.py`` (LabelEnv), then ``dataset.py`` (which papers, in which order). The adversarial task is in
``adversarial.py``, its challenger and judge in ``adversarial_opponents.py``.
"""
