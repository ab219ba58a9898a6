"""A definition file and its run script, against what Apptainer documents of both.

Reads one ``[target, texts]`` per line and answers a list of complaints per line. Apptainer is not
packaged for every system, so its grammar stands here: the header, sections and bootstrap agents of
"Definition Files" and the options of ``apptainer run``, Apptainer 1.4 user guide, read 2026-11-21.
"""

import json
import re
import shlex
import subprocess
import sys

AGENTS = {
    "library", "docker", "docker-daemon", "docker-archive", "shub", "oras", "localimage", "yum",
    "dnf", "debootstrap", "oci", "oci-archive", "busybox", "arch", "zypper", "scratch",
}  # fmt: skip
HEADER = {
    "bootstrap", "from", "stage", "include", "mirrorurl", "osversion", "updateurl", "library",
    "namespace", "fingerprints",
}  # fmt: skip
SECTIONS = {
    "setup", "files", "environment", "post", "runscript", "startscript", "test", "labels", "help",
    "arguments", "appinstall", "apphelp", "apprun", "applabels", "appenv", "appfiles", "appstart",
    "apptest",
}  # fmt: skip
SCRIPTS = {"setup", "environment", "post", "runscript", "startscript", "test"}
WITH_VALUE = {"--bind", "--env", "--env-file", "--home", "--overlay", "--pwd", "--workdir"}
ALONE = {
    "--nv",
    "--nvccli",
    "--rocm",
    "--cleanenv",
    "--contain",
    "--containall",
    "--writable-tmpfs",
}
IMAGE = re.compile(r"[a-z0-9.:-]+(/[a-z0-9._-]+)*(:\w[\w.-]*)?(@sha256:[0-9a-f]{64})?")


def shell_complaints(name, text):
    """What ``sh -n`` says of a script; it parses and runs nothing."""
    done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
    return [f"{name}: {done.stderr.strip()}"] if done.returncode else []


def parts_of(text):
    """The header as (key, value) pairs, and the sections by name."""
    header, sections, name = [], {}, None
    for line in text.splitlines():
        if line.startswith("%"):
            name = line[1:].split()[0] if line[1:].split() else ""
            sections[name] = []
        elif name is not None:
            sections[name].append(line)
        elif line.strip() and not line.startswith("#"):
            key, colon, value = line.partition(":")
            header.append((key.strip().lower() if colon else line, value.strip()))
    return header, {name: "\n".join(lines) for name, lines in sections.items()}


def definition(text):
    """Complaints about a definition file: header, sections, agent, image and scripts."""
    header, sections = parts_of(text)
    known = dict(header)
    complaints = [f"unknown header `{key}`" for key in known if key not in HEADER]
    complaints += [f"unknown section %{name}" for name in sections if name not in SECTIONS]
    if not header or header[0][0] != "bootstrap":
        complaints.append("the first word must be Bootstrap")
    if known.get("bootstrap") not in AGENTS:
        complaints.append(f"unknown agent `{known.get('bootstrap')}`")
    if known.get("bootstrap") == "docker" and not IMAGE.fullmatch(known.get("from", "")):
        complaints.append(f"no image reference: `{known.get('from')}`")
    for name in SCRIPTS & sections.keys():
        complaints += shell_complaints(f"%{name}", sections[name])
    return complaints


def run_script(text):
    """Complaints about the script that calls ``apptainer``: its options and its image."""
    complaints = shell_complaints("run.sh", text)
    line = next((one for one in text.splitlines() if one.startswith("exec ")), "")
    try:
        words = shlex.split(line)[1:]
    except ValueError as error:
        return [*complaints, str(error)]
    if words[:2] not in (["apptainer", "run"], ["apptainer", "exec"]):
        return [*complaints, "neither `apptainer run` nor `apptainer exec`"]
    rest = words[2:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in WITH_VALUE and rest:
            rest.pop(0)
        elif option not in ALONE:
            complaints.append(f"unknown option {option}")
    if not rest or not rest[0].endswith(".sif"):
        complaints.append("no image")
    return complaints


for row in sys.stdin:
    target, texts = json.loads(row)
    found = [*run_script(texts[0]), *definition(texts[1])]
    print(json.dumps(found), flush=True)
