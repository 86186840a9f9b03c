"""Small tables that the package ships.

tinyshakespeare_bigram_counts.csv: how often each of 65 characters follows each in the 1,115,394 characters of
"tinyshakespeare", 40,000 lines of Shakespeare's plays that Andrej Karpathy put together for char-rnn in 2015. Rows and
columns are characters by code point, counts are of the whole text, unsmoothed. The plays are in the public domain, and
the table holds counts alone.
"""
