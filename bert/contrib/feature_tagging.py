"""What answers with a feature-based tagger: words, as every tagger does."""

from bert.serving import answers


class FeatureTagging(answers.Tagging):
  """Labels of words, by a BiLSTM on a frozen BERT."""

  head = "bert.contrib.feature_tagger.FeatureTaggerModel"


ANSWER_MAKER = FeatureTagging
