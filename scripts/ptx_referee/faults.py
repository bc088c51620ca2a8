"""Planted faults: edits of a kernel's PTX that the referee must see, by a fault, a deadlock or another result."""
import dataclasses
import re

import ptx
from memory import Fault


@dataclasses.dataclass(frozen=True)
class PlantedFault:
    name: str
    case: str  # name of the case
    pattern: str
    replacement: str
    timing: str
    seen_by: str  # a text that the outcome must have: other faults would hide that this one is not seen
    last_only: bool = False  # edits the last place alone

    def edit(self, text, kernel):
        """The PTX with the edit in this kernel. An edit that changes nothing is an error."""
        text = ptx.without_comments(text)
        entry = ptx.find_entry(text, kernel)
        places = list(re.finditer(self.pattern, entry.body))
        if not places:
            raise Fault(f"{kernel} no longer has it: {self.pattern}")
        body = entry.body
        for place in reversed(places[-1:] if self.last_only else places):
            body = body[:place.start()] + place.expand(self.replacement) + body[place.end():]
        if body == entry.body:
            raise Fault(f"the edit changes nothing in {kernel}: {self.pattern}")
        return text[:entry.begin] + body + text[entry.begin + len(entry.body):]


WEIGHTS = "gemm_s8_w4_mma_sm80 60x70x150"
WIDE = "gemm_s8_s8_bf16_wgmma256_sm90a 136x264x600"
FRAGMENTS = "gemm_w4_s8_bf16_wgmma256_sm90a 264x72x600"
MULTICAST = r"\.multicast::cluster ([^;]*), %rs\d+;"

FAULTS = [
    PlantedFault("cp.async.wait_group 2 to 3", WEIGHTS, r"(cp\.async\.wait_group) 2;", r"\1 3;", "late", "differ"),
    PlantedFault("last wgmma.wait_group removed", WIDE, r"wgmma\.wait_group\.sync\.aligned 0;", "", "late", "differ"),
    PlantedFault("fence.proxy.async removed", WIDE, r"fence\.proxy\.async\.shared::cta;", "", "late", "without fence.proxy.async"),
    PlantedFault("last wgmma.fence removed", FRAGMENTS, r"wgmma\.fence\.sync\.aligned;", "", "late",
                 "without wgmma.fence", last_only=True),
    PlantedFault("wgmma.wait_group 1 to 2", WIDE, r"(wgmma\.wait_group\.sync\.aligned) 1;", r"\1 2;", "early", "differ"),
    PlantedFault("multicast removed", WIDE, MULTICAST, r" \1;", "late", "deadlock"),
    PlantedFault("stmatrix.trans to plain", FRAGMENTS, r"(stmatrix\.sync\.aligned\.m8n8\.x4)\.trans", r"\1", "late", "differ"),
    PlantedFault("bulk wait_group.read 1 to 2", WIDE, r"(cp\.async\.bulk\.wait_group\.read) 1;", r"\1 2;", "late", "differ"),
    PlantedFault("last bulk wait removed", WIDE, r"cp\.async\.bulk\.wait_group \d+;", "", "late", "nobody waited for", last_only=True),
]
QUICK = ("fence.proxy.async removed", "wgmma.wait_group 1 to 2", "multicast removed", "stmatrix.trans to plain")
