def controls(evidence, found):
    return {}
