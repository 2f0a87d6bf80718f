"""BFCL's eight stateful APIs: files, tweets, messages, tickets, trading, travel, a car, mathematics."""
