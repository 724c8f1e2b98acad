def generate_inputs():
    return [1.0, 2.0, 3.0, 4.0]


def compute_golden(data):
    return data
