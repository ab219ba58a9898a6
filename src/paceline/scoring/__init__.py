"""Score predictions against published measurements: the one way in which everybody does."""

from paceline.scoring.score import ScoreSummary, predict_rows, score_rows

__all__ = ["ScoreSummary", "predict_rows", "score_rows"]
