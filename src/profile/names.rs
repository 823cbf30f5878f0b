//! What the name of a field says about it. A path is split into its parts, the leaf first, and a part into lower-case words at
//! punctuation, digits and capital letters (`customer.homeZip` is home zip, in customer). A list matches a word, or the end of all
//! words run together (`zipcode`).

/// People.
const PEOPLE: &str = "\
    user customer patient person subject employee member client subscriber citizen student staff worker passenger insured \
    holder kunde kunden patienten personal personen mitarbeiter mitglied versicherten paciente cliente usuario empleado \
    utilisateur salarie";
/// With the word of a number, a number of a person: a passport, a tax file, a medical record.
const PERSONAL_FILES: &str = "\
    passport social insurance tax national medical health license licence ausweis steuer versicherung sozialversicherung matrikel";
/// Numbers of people that have a name of their own.
const PERSONAL_NUMBERS: &str = "\
    ssn nino mrn nhs bsn cpf dni nie nif pesel msisdn imsi personnummer";
/// Something that stands for a person while they use it.
const DEVICES: &str = "\
    visitor cookie device session account household imei";
/// Words that make a number out of a name.
const NUMBERS: &str = "\
    id oid uuid guid key ref reference hash token nr";
/// The same at the end of a name; elsewhere they count (`number of children`).
const LAST_NUMBERS: &str = "\
    number num no nummer kennung numero";
/// Names of people in one word.
const PERSONAL_NAMES: &str = "\
    firstname lastname surname forename givenname familyname middlename maidenname birthname fullname nickname username \
    loginname vorname nachname familienname geburtsname rufname zuname prénom prenom apellido apellidos cognome \
    sobrenome voornaam achternaam fornavn efternavn etternavn förnamn efternamn etunimi sukunimi imię imie nazwisko jméno \
    příjmení prijmeni keresztnév vezetéknév soyad имя фамилия отчество фио 姓名 名前 氏名 이름 성명";
/// The word name where it stands alone or with somebody. `nombre` counts in French.
const NAME: &str = "\
    name fname lname nom nome nombre naam navn namn jmeno";
/// What has a name and is no person.
const THINGS: &str = "\
    product item article category sku city town village suburb district county state province region country place ort stadt land \
    hospital clinic ward station department dept division team office site branch store company employer industry school \
    university brand model manufacturer campaign plan tariff service browser os platform event page file host job role \
    diagnosis disease drug medication treatment test";
/// Identifies people directly.
pub(crate) const IDENTIFIERS: &str = "\
    email mail iban creditcard password twitter ssn nino mrn msisdn imsi imei";
/// Identifies people directly if it is more than a yes or no, or a kind of it.
pub(crate) const CONTACTS: &str = "\
    phone telephone mobile fax login passport licence license bic pan card address street mac plate vin signature photo \
    strasse straße anschrift adresse telefon handy nhs bsn cpf dni nie nif pesel personnummer";
/// Known to others, and different from person to person.
pub(crate) const QUASI: &str = "\
    age birth birthday birthdate born dob birthyear sex gender zip zipcode postal postcode postalcode plz city town \
    village suburb district county state province region country nationality citizenship birthplace race ethnicity ethnic \
    marital married family children household education degree school university occupation job profession position title \
    role grade level department dept division team office site branch employer company industry workclass hired hire \
    tenure seniority latitude longitude lat lon lng breitengrad längengrad geohash location place store cell tower height weight language locale \
    browser agent useragent os platform resolution screen timezone ip model brand manufacturer vehicle hospital clinic \
    ward physician doctor admission admitted discharge discharged plan tariff contract alter geschlecht geburtsdatum ort \
    stadt land beruf familienstand geburt aufnahme entlassung station abteilung";
/// What people would not want told.
pub(crate) const SENSITIVE: &str = "\
    diagnosis diagnose disease illness condition icd symptom medication medicine drug treatment therapy procedure allergy \
    hiv test result finding bloodtype blood genotype disability pregnant pregnancy smoker bmi salary income wage pay \
    earnings bonus wealth debt loan balance creditscore religion belief political politics party union orientation \
    sexuality crime offence offense conviction arrest performance absence sick complaint churn default fraud gehalt \
    einkommen krankheit raucher";
/// What happened rather than who it was.
pub(crate) const FACTS: &str = "\
    product item article category sku quantity qty count amount total price cost currency payment status channel page url \
    path event action type duration seconds minutes bytes clicks views score rating stars discount coupon direction \
    service campaign referrer visits megabytes mb";

/// A time.
pub(crate) const TIMES: &str = "\
    time timestamp ts at date datetime datum zeit zeitpunkt zeitstempel created updated modified changed seen login visited \
    admitted admission discharged born birth dob birthday birthdate geboren geburt geburtsdatum naissance nacimiento";
/// A day.
pub(crate) const DAYS: &str = "\
    date datum born birth dob birthday birthdate geboren geburt geburtsdatum naissance nacimiento";

/// The words of a name.
pub(crate) fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut lower_before) = (String::new(), false);
    for c in name.chars() {
        let boundary = !c.is_alphabetic() || (c.is_uppercase() && lower_before);
        if boundary && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphabetic() {
            word.extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase();
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// The parts of a path in words, the leaf first.
pub(crate) fn parts(name: &str) -> Vec<Vec<String>> {
    name.rsplit('.').map(words).filter(|words| !words.is_empty()).collect()
}

/// Whose a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberOf {
    /// A person's.
    Person,
    /// Something's that a person uses.
    Device,
    /// An order's, say.
    Thing,
    /// The name does not say it: `id`.
    Unsaid,
}

/// Whose number a field is by the name of its leaf, or of the part around a leaf that says no more than `id`; `None` if it is none.
/// `few` values are rather a count than a number.
pub(crate) fn number_of(parts: &[Vec<String>], few: bool) -> Option<NumberOf> {
    let leaf = parts.first()?;
    if find(leaf, PERSONAL_NUMBERS).is_some() {
        return Some(NumberOf::Person);
    }
    let numbers = || NUMBERS.split_whitespace().chain(LAST_NUMBERS.split_whitespace());
    let word = |word: &String| NUMBERS.split_whitespace().any(|known| known == word);
    // `patientennummer`, `customerid`
    let of = |word: &String, list: &str| list.split_whitespace().any(|known| compound(word, known, numbers()));
    let owner = |words: &[String]| {
        let says = |list: &'static str| find(words, list).is_some() || words.iter().any(|word| of(word, list));
        match (says(PEOPLE) || says(PERSONAL_FILES), says(DEVICES)) {
            (true, _) => NumberOf::Person,
            (_, true) => NumberOf::Device,
            _ => NumberOf::Thing,
        }
    };
    let run_together = [PEOPLE, PERSONAL_FILES, DEVICES].iter().any(|list| leaf.iter().any(|word| of(word, list)));
    let last = leaf.last().is_some_and(|last| {
        LAST_NUMBERS.split_whitespace().any(|known| last.ends_with(known) && (known.len() >= 5 || known == last))
    });
    let counted = last && (!few || owner(leaf) != NumberOf::Thing);
    if !run_together && !leaf.iter().any(word) && !counted {
        return None;
    }
    let bare = leaf.iter().all(|word| numbers().any(|known| known == word));
    Some(match (bare, parts.get(1)) {
        (false, _) => owner(leaf),
        (true, Some(around)) => owner(around),
        (true, None) => NumberOf::Unsaid,
    })
}

/// True if a word is `first`, perhaps a letter that links, and one of `seconds`.
fn compound<'a>(word: &str, first: &str, mut seconds: impl Iterator<Item = &'a str>) -> bool {
    word.strip_prefix(first).filter(|rest| !rest.is_empty()).is_some_and(|rest| {
        seconds.any(|second| ["", "s", "n", "en"].iter().any(|link| rest.strip_prefix(link) == Some(second)))
    })
}

/// True if the first part is the name of a person. `around` are the parts around it.
pub(crate) fn is_personal_name(part: &[String], around: &[Vec<String>]) -> bool {
    let names = || NAME.split_whitespace();
    let together = |word: &String| PEOPLE.split_whitespace().any(|person| compound(word, person, names()));
    if find(part, PERSONAL_NAMES).is_some() || part.iter().any(together) {
        return true;
    }
    let rest: Vec<String> = part.iter().filter(|word| names().all(|name| name != *word)).cloned().collect();
    let whose = if rest.is_empty() { around.first().map_or(&[][..], Vec::as_slice) } else { &rest };
    match rest.len() < part.len() {
        false => false,
        // In other languages only alone or with somebody: `nombre` also counts.
        true if !part.iter().any(|word| word == "name") => rest.is_empty() || find(whose, PEOPLE).is_some(),
        true => find(whose, THINGS).is_none(),
    }
}

/// True if the words are one that stands for a person or their device.
pub(crate) fn is_somebody(part: &[String]) -> bool {
    part.len() == 1 && (find(part, PEOPLE).is_some() || find(part, DEVICES).is_some())
}

/// The word of the list that the name has: a word of it, or a long one that ends it when all are run together.
pub(crate) fn find(words: &[String], list: &'static str) -> Option<&'static str> {
    let joined: String = words.concat();
    let has = |known: &&str| {
        words.iter().any(|word| word == *known || word.strip_suffix('s') == Some(*known))
            || known.len() >= 5 && joined.ends_with(*known)
    };
    list.split_whitespace().find(has)
}

/// The same, but not if one of `others` comes after it: `card_type` is a type.
pub(crate) fn find_last(words: &[String], list: &'static str, others: &[&'static str]) -> Option<&'static str> {
    let found = find(words, list)?;
    let place = words.iter().rposition(|word| word.trim_end_matches('s') == found.trim_end_matches('s'));
    let after = place.map_or(&[][..], |place| &words[place + 1..]);
    others.iter().all(|other| find(after, other).is_none()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_and_found() {
        assert_eq!(parts("customer.homeZip_2"), [vec!["home", "zip"], vec!["customer"]]);
        assert_eq!(words("marital-status"), ["marital", "status"]);
        assert_eq!(find(&words("ZIPCODE"), QUASI), Some("zipcode"));
        assert_eq!(find(&words("native-country"), QUASI), Some("country"));
        assert_eq!(find(&words("package"), QUASI), None, "age is no word of it");
        assert_eq!(find(&words("salaryClass"), SENSITIVE), Some("salary"));
    }

    #[test]
    fn numbers_have_an_owner() {
        use NumberOf::{Device, Person, Thing, Unsaid};
        for (name, owner) in [
            ("mrn", Some(Person)),
            ("Patienten-ID", Some(Person)),
            ("patientennummer", Some(Person)),
            ("customerid", Some(Person)),
            ("patient.id", Some(Person)),
            ("socialSecurityNumber", Some(Person)),
            ("patient.ward.id", Some(Thing)),
            ("deviceId", Some(Device)),
            ("Fallnummer", Some(Thing)),
            ("order_id", Some(Thing)),
            ("id", Some(Unsaid)),
            ("number_of_children", None),
            ("diagnosis", None),
        ] {
            assert_eq!(number_of(&parts(name), false), owner, "{name}");
        }
        assert_eq!(number_of(&parts("floor_number"), true), None, "few values");
    }
}
