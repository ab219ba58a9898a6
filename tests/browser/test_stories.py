"""Ten stories that a reader of the local page lives through, in a browser without a network.

`make stories` runs them with axe-core and writes the pictures of docs/how-to/use-the-page.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("selenium")
pytest.importorskip("vl_convert")
pytest.importorskip("starlette")

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.slow

_CHROMIUM, _DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
#: Where pictures go, and axe-core's script; nothing is written or checked without them.
_PICTURES, _AXE = os.environ.get("PACELINE_PICTURES"), os.environ.get("AXE_CORE")
_DAY, _PATIENCE_S = "2026-11-20", 45
_SCRIPT = """
import torch
from torch import nn

model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(64 * 8 * 8, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
while True:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
"""


class Reader:
    """Someone at the page."""

    def __init__(self, url: str, driver: webdriver.Chrome) -> None:
        self.url, self.driver = url, driver
        self.home = url.partition("?")[0]

    def goes(self, path: str = "") -> None:
        self.driver.get(self.home + path)
        self.until(lambda: not self.all("#answer > .wait"))

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def until(self, holds: Callable[[], object]) -> None:
        # What is swapped while it is looked at is looked at again.
        swapped = (NoSuchElementException, StaleElementReferenceException)
        wait = WebDriverWait(
            self.driver, _PATIENCE_S, poll_frequency=0.1, ignored_exceptions=swapped
        )
        wait.until(lambda _: holds())

    def sees(self, text: str) -> None:
        self.until(lambda: text in self.one("body").text)

    def headline(self) -> str:
        return self.one(".headline").text

    def types(self, name: str, text: str) -> None:
        field = self.one(f"[name={name}]")
        field.clear()
        field.send_keys(text, Keys.TAB)

    def opens(self, part: str) -> None:
        panel = self.one(f"#panel-{part}")
        if not panel.get_attribute("open"):
            panel.find_element(By.CSS_SELECTOR, "summary").click()
        self.until(lambda: self.all(f"#in-{part} svg"))

    def sees_charts(self) -> None:
        self.until(lambda: self.all("figure svg") and not self.all(".chart:empty"))

    def keeps(self, name: str, *, at: str = "") -> None:
        """A picture of what is seen, from an element on; and no finding of axe-core's."""
        if at:
            self.driver.execute_script(
                "document.querySelector(arguments[0]).scrollIntoView({block: 'start'})", at
            )
        self.checks()
        if _PICTURES:
            time.sleep(0.3)
            Path(_PICTURES).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(_PICTURES) / f"{name}.png"))

    def checks(self) -> None:
        refused = [one for one in self.driver.get_log("browser") if one["level"] == "SEVERE"]
        assert [one["message"] for one in refused if "favicon" not in one["message"]] == []
        if not _AXE:
            return
        # Evaluated by the driver, beside the policy of the page.
        self.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        self.driver.execute_script(Path(_AXE).read_text(encoding="utf-8"))
        found = self.driver.execute_async_script("axe.run().then(arguments[0])")
        bad = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in bad] == []


def browser(width: int = 1360, height: int = 1000, *, is_dark: bool = False) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = str(_CHROMIUM)
    for word in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", f"--window-size={width},{height}", "--proxy-server=127.0.0.1:9",
        "--proxy-bypass-list=127.0.0.1",
    ):  # fmt: skip
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(_DRIVER)))
    driver.set_script_timeout(_PATIENCE_S)
    scheme = "dark" if is_dark else "light"
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme},
                      {"name": "prefers-reduced-motion", "value": "reduce"}]},
    )  # fmt: skip
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    return driver


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def url(runs: Path) -> Iterator[str]:
    if not (_CHROMIUM.exists() and _DRIVER.exists()):
        pytest.skip("needs chromium and chromedriver")
    words = ["web", "--as-of", _DAY, "--runs", str(runs)]
    page = subprocess.Popen(
        [sys.executable, "-m", "paceline", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert page.stdout is not None
        yield page.stdout.readline().strip()
    finally:
        page.terminate()
        page.communicate()


@pytest.fixture(scope="module")
def reader(url: str) -> Iterator[Reader]:
    driver = browser()
    try:
        driver.get(url)
        yield Reader(url, driver)
    finally:
        driver.quit()


def test_1_the_answer_stands_there_when_the_page_is_opened(reader: Reader) -> None:
    reader.goes()
    assert reader.headline().startswith("Rent ")
    reader.sees_charts()
    assert "token" not in reader.driver.current_url
    assert reader.one("#said").get_attribute("textContent") == reader.headline()
    reader.keeps("1-open")


def test_2_a_model_is_found_by_a_part_of_its_name(reader: Reader) -> None:
    reader.goes()
    field = reader.one("[name=model]")
    field.clear()
    field.send_keys("vit b")
    reader.until(lambda: reader.all("#names option"))
    names = [one.get_attribute("value") for one in reader.all("#names option")]
    assert "vit_b_16" in names, names
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("vit_b_16", Keys.TAB)
    reader.sees("ViT")
    reader.until(lambda: "vit_b_16" in reader.driver.current_url)
    reader.sees_charts()
    reader.keeps("2-model")


def test_3_a_deadline_is_moved_by_the_keyboard(reader: Reader) -> None:
    reader.goes("?model=resnet50&deadline=8h")
    before = reader.headline()
    slider = reader.one(".slider[data-for=f-deadline]")
    assert slider.get_attribute("aria-valuetext") == "8h"
    for _ in range(4):
        slider.send_keys(Keys.ARROW_LEFT)
    reader.until(lambda: reader.headline() != before)
    assert reader.one("[name=deadline]").get_attribute("value") == "2h"
    reader.until(lambda: "deadline=2h" in reader.driver.current_url)
    reader.sees("done within 2.0")
    reader.sees_charts()
    reader.keeps("3-deadline")


def test_4_a_point_says_why_and_opens_its_choice(reader: Reader) -> None:
    reader.goes("?model=resnet50&deadline=24h")
    reader.sees_charts()
    point = reader.all("figure svg .mark-symbol path")[1]
    ActionChains(reader.driver).move_to_element(point).perform()
    reader.until(lambda: reader.all("#vg-tooltip-element.visible"))
    assert "why" in reader.one("#vg-tooltip-element").text
    reader.keeps("4-why")
    ActionChains(reader.driver).click(point).perform()
    reader.until(lambda: reader.all("details[id^=choice-][open]"))


def test_5_other_deadlines_and_prices(reader: Reader) -> None:
    reader.goes("?model=resnet50&deadline=4h&max-devices=8")
    reader.opens("deadlines")
    reader.sees("With another deadline")
    reader.keeps("5-sensitivity", at="#panel-deadlines")


def test_6_scaling_roofline_and_memory(reader: Reader) -> None:
    reader.goes("?model=gpt2&device=a100&deadline=3d")
    reader.opens("scaling")
    reader.keeps("6-scaling", at="#panel-scaling")
    reader.opens("anatomy")
    reader.sees("Memory over the pass")
    reader.sees_charts()
    reader.keeps("6-roofline", at="#panel-anatomy")


def test_7_a_service_and_its_latency_against_load(reader: Reader) -> None:
    reader.goes("?model=llama-3-8b&task=infer&rps=5&ttft=1s&device=h100,l40s&max-devices=2")
    assert "per token" in reader.headline()
    reader.opens("load")
    reader.keeps("7-service", at="#panel-load")


def test_8_two_are_compared_and_one_is_taken_along(reader: Reader) -> None:
    reader.goes("?model=resnet50&deadline=24h")
    command = reader.one("[data-copy]").get_attribute("data-copy")
    assert command == "paceline plan resnet50 --deadline 24h"
    reader.one("[data-keep]").click()
    reader.types("device", "h100")
    reader.sees("Compare with what was kept")
    reader.one(".actions a[href^='/compare']").click()
    reader.sees("Side by side")
    reader.keeps("8-compare")


def test_9_a_run_is_followed_beside_its_prediction(
    reader: Reader, runs: Path, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(_SCRIPT, encoding="utf-8")
    threads = str(torch.get_num_threads())
    paceline_words = [sys.executable, "-m", "paceline"]
    environment = os.environ | {
        "PACELINE_STORE": str(tmp_path / "store"), "OMP_NUM_THREADS": threads,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    words = ["measure", "mnist-cnn", "--batch", "16,64", "--threads", threads, "--seconds", "0.3"]
    subprocess.run([*paceline_words, *words], env=environment, check=True)
    words = ["run", "-q", "--runs", str(runs), "--", "python", "train.py"]
    run = subprocess.Popen([*paceline_words, *words], env=environment, cwd=tmp_path)
    try:
        reader.until(lambda: any(runs.glob("*/run.json")))
        reader.goes("runs")
        reader.sees("running")
        reader.checks()
        reader.one("tbody a").click()
        reader.until(lambda: reader.all("figure svg .mark-line path"))
        first = reader.one(".tile dd").text
        reader.until(lambda: reader.one(".tile dd").text != first)
        reader.until(lambda: reader.all("figure svg .mark-area path"))
        reader.sees_charts()
        reader.keeps("9-run")
    finally:
        subprocess.run([*paceline_words, "runs", "stop", "--runs", str(runs)], check=False)
        run.wait(timeout=60)


def test_10_mistakes_a_phone_and_the_dark(reader: Reader, url: str) -> None:
    reader.goes("?model=resnet50&device=rtx4900")
    reader.sees("did you mean")
    reader.keeps("10-mistake")
    driver = browser(400, 860, is_dark=True)
    try:
        driver.get(url)
        phone = Reader(url, driver)
        phone.goes("?model=resnet50&deadline=24h")
        phone.sees_charts()
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 400
        phone.keeps("10-phone", at="#answer")
        phone.keeps("10-phone-charts", at="figure")
    finally:
        driver.quit()
