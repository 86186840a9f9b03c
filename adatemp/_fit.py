"""placeholder until the fit lands"""

TemperatureFit = fit_inverse_temperature = None
