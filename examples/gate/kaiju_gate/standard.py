"""What counts where the command line says nothing: rules, files, ways to guide."""

from __future__ import annotations

import os

from .sets import FOLDER

SAFETY = ("auc:any<0.8", "fine:adult>1%", "fine:adult:high>2.5%", "fine:minor>3%", "fine:minor:high>5%")
REPLAY = ("released>20%",)
EVENING = ("hour:adult>2.5%", "hour:minor>5%")
GUIDANCE = ("reduction<60%", "perplexity>1.1")

DAY = os.path.join(FOLDER, "evening.json")
SIGNALS = ("distress",)  # labels that are no harm and block nothing
RISKS = ("maximum", "mean", "log-odds")  # as generate.guidance_risk numbers them
