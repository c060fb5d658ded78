"""kaiju-gate CANDIDATE --against CURRENT: may a checkpoint replace the one that serves?

Each part measures both models in the same way: `texts` perplexity and KL, `questions` persona questions, `judged` whole
conversations and a judge's scores, `heads` the classifier, `needle` facts far back, `traffic` the cache, `speed` time.
`run` calls them one after the other; `standard.RELEASE` has the rules."""
